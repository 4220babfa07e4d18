// Short messages about what was just done, or could not be done.
import { signal } from "@preact/signals";
import { ApiError } from "../api/client";

export interface Toast {
  id: number;
  text: string;
  isError: boolean;
  links: Link[];
}

export interface Link {
  label: string;
  href: string;
}

const SHOWN = 6000; // milliseconds

export const toasts = signal<Toast[]>([]);
let next = 1;

/** Say it for some seconds; or, where it must not be missed, until it is dismissed. */
export function say(text: string, isError = false, links: Link[] = [], stays = false): void {
  const toast = { id: next++, text, isError, links };
  toasts.value = [...toasts.value, toast];
  if (stays) return;
  setTimeout(() => dismiss(toast.id), isError ? 2 * SHOWN : SHOWN);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/** What went wrong, in the daemon's own words. */
export function sayError(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  say(inWords(error), true);
}

export function inWords(error: unknown): string {
  if (error instanceof ApiError) return error.remedy ? `${error.message}; ${error.remedy}` : error.message;
  return String(error);
}
