import { dismiss, toasts } from "../state/toasts";
import { Icon } from "./Icon";

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.isError ? "toast toast-error" : "toast"}>
          <span>
            {toast.text}
            {toast.links.map((link) => [
              " ",
              <a key={link.href} href={link.href}>
                {link.label}
              </a>,
            ])}
          </span>
          <button class="quiet" aria-label="dismiss" onClick={() => dismiss(toast.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
