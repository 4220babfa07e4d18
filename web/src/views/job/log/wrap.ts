// Whether long lines are broken; kept for the next log.
import { effect, signal } from "@preact/signals";

const KEY = "dibs-wrap";

export const isWrapped = signal(localStorage.getItem(KEY) === "yes");

effect(() => localStorage.setItem(KEY, isWrapped.value ? "yes" : "no"));
