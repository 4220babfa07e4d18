// How long something has run. While it is suspended its time stands still.
import type { Attempt, Job } from "./api/types";

export interface Stretch {
  begin: number; // milliseconds since the epoch
  end: number; // Infinity: it lasts
}

/** Seconds that a job has run, or ran; null of one that waits. */
export function ranSeconds(job: Pick<Job, "seconds" | "state" | "started_at" | "suspended_seconds" | "ran_seconds">, now: number): number | null {
  if (job.seconds !== null) return job.seconds;
  if (job.state === "suspended") return job.ran_seconds;
  if (job.state !== "running" || !job.started_at) return null;
  return Math.max(0, (now - Date.parse(job.started_at)) / 1000 - (job.suspended_seconds ?? 0));
}

/** The same of one attempt. */
export function attemptSeconds(one: Attempt, now: number): number {
  return one.seconds ?? (lengthOf(stretchOf(one.started_at, one.ended_at), now) - sum(suspendedIn(one), now)) / 1000;
}

/** The times in which an attempt stood still, the oldest first. */
export function suspendedIn({ suspensions }: Attempt): Stretch[] {
  return suspensions.filter((one) => one.suspended_at).map((one) => stretchOf(one.suspended_at!, one.ended_at));
}

export function stretchOf(begin: string, end: string | null): Stretch {
  return { begin: Date.parse(begin), end: end ? Date.parse(end) : Infinity };
}

/** Milliseconds of all of them until now. */
export function sum(stretches: readonly Stretch[], now: number): number {
  return stretches.reduce((total, one) => total + lengthOf(one, now), 0);
}

function lengthOf({ begin, end }: Stretch, now: number): number {
  return Math.max(0, Math.min(end, now) - begin);
}
