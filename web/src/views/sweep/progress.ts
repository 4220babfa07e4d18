// How far a sweep has come.
import type { Sweep } from "./shapes";

/** Trials that have ended, and how many there will be; null if that is unknown. */
export function progress({ counts, size }: Sweep): { done: number; total: number | null } {
  return { done: counts.complete + counts.pruned + counts.failed + counts.reused, total: size };
}

/** The command as it was written, with its parameters in braces. */
export function template({ spec }: Sweep): string {
  return spec.command || (spec.words ?? []).join(" ");
}
