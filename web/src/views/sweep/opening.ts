import { go } from "../../router";
import type { Trial } from "./shapes";

/** The job that a trial's results are from, where it has one already. */
export function jobOf(trial: Trial | undefined): number | null {
  return trial?.job ?? trial?.reused_from ?? null;
}

export function openTrial(trial: Trial | undefined): void {
  const job = jobOf(trial);
  if (job !== null) go(`job/${job}`);
}
