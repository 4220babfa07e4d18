import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: string;
  children: () => ComponentChildren; // made when it is unfolded
}

/** A button that unfolds something below it. A click elsewhere, or Escape, folds it again. */
export function Menu({ label, children }: Props) {
  const place = useRef<HTMLDetailsElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const fold = () => {
      if (place.current) place.current.open = false;
    };
    const elsewhere = (event: Event) => {
      const { target } = event;
      // What a click has removed from the page was inside, too.
      if (target instanceof Node && target.isConnected && !place.current?.contains(target)) fold();
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !place.current?.open) return;
      fold();
      place.current.querySelector("summary")?.focus();
    };
    document.addEventListener("click", elsewhere);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("click", elsewhere);
      document.removeEventListener("keydown", escape);
    };
  }, []);
  return (
    <details ref={place} class="menu" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="button">{label}</summary>
      {isOpen && <div class="menu-body panel">{children()}</div>}
    </details>
  );
}
