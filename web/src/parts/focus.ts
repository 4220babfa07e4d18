// Where a form has something wrong, the first such field has the focus.
import type { RefObject } from "preact";

/** To be called after the problems were set: the fields are marked when they are drawn the next time. */
export function focusWrong(form: RefObject<HTMLElement | null>): void {
  window.setTimeout(() => form.current?.querySelector<HTMLElement>("[aria-invalid='true']")?.focus());
}
