import type { Job } from "../api/types";
import { ranSeconds } from "../elapsed";
import { now } from "../state/clock";
import { duration } from "../words";

type Running = Pick<Job, "state" | "progress" | "ends_at" | "started_at" | "time_limit_seconds" | "seconds" | "suspended_seconds" | "ran_seconds">;

/** How far a running or suspended job is: by its own progress, or against its time limit. Where neither is known there is no bar. */
export function RunBar({ job }: { job: Running }) {
  const found = partOf(job, now.value);
  if (!found) return null;
  const percent = Math.floor(found.part * 100);
  return (
    <div class="run-bar" role="progressbar" aria-label={found.says} aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100} title={found.says}>
      <span style={{ width: `${found.part * 100}%` }} class={found.isLimit ? "is-limit" : undefined} />
    </div>
  );
}

/** `45 %, 12m left`; empty where the job does not tell. A job that is late has stalled: nothing is said of its end. */
export function progressWords(job: Pick<Job, "progress" | "ends_at">, at: number): string {
  if (job.progress === null) return "";
  const left = job.ends_at ? (Date.parse(job.ends_at) - at) / 1000 : 0;
  return `${Math.floor(job.progress * 100)} %${left > 0 ? `, ${duration(left)} left` : ""}`;
}

function partOf(job: Running, at: number): { part: number; says: string; isLimit: boolean } | null {
  if (job.state !== "running" && job.state !== "suspended") return null;
  if (job.progress !== null) return { part: job.progress, says: progressWords(job, at), isLimit: false };
  if (!job.time_limit_seconds) return null;
  const seconds = ranSeconds(job, at);
  if (seconds === null) return null;
  const part = Math.min(1, seconds / job.time_limit_seconds);
  return { part, says: `${duration(seconds)} of at most ${duration(job.time_limit_seconds)}`, isLimit: true };
}
