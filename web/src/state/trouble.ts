// Why nothing can be started or recorded at the moment, such as a full disk.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** A sentence; empty while nothing is wrong. App shows it above every view. */
export const trouble = signal("");

/** Take it from an answer that a view reads again and again. */
export function useTrouble(answer: { trouble: string } | null): void {
  useEffect(() => {
    if (answer) trouble.value = answer.trouble;
  }, [answer]);
}
