import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** The browser's own dialog: it keeps the focus inside, and Escape closes it. A click beside it closes it too, but
 * does not throw away what was typed: it may be the end of a drag that selected text. */
export function Dialog({ title, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const clickBeside = (event: MouseEvent) => {
    if (event.target === dialog.current && !dialog.current?.querySelector("form")) onClose();
  };
  return (
    <dialog ref={dialog} aria-label={title} onClose={onClose} onClick={clickBeside}>
      <div class="dialog">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
