// How it stands with a job, in one sentence; the words are those of `dibs info`.
import type { Attempt, State, WholeJob } from "../../api/types";
import { ranSeconds } from "../../elapsed";
import { placeInWords, systemName } from "../../places";
import { clock, duration } from "../../words";

const WAITING: readonly State[] = ["queued", "held", "submitted"];
const OVER: readonly State[] = ["succeeded", "failed", "cancelled", "timed_out", "lost"];
const VERBS: Partial<Record<State, string>> = {
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Was stopped",
  timed_out: "Ran out of time",
  lost: "Was lost",
};
const ORDINARY = ["exit code", "signal", "killed", "stopped"]; // causes that say no more than the number does
const SIGNALS: Record<number, string> = {
  1: "SIGHUP",
  2: "SIGINT",
  3: "SIGQUIT",
  4: "SIGILL",
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  10: "SIGUSR1",
  11: "SIGSEGV",
  12: "SIGUSR2",
  13: "SIGPIPE",
  14: "SIGALRM",
  15: "SIGTERM",
  24: "SIGXCPU",
  25: "SIGXFSZ",
};

export function isWaiting(state: State): boolean {
  return WAITING.includes(state);
}

export function isOver(state: State): boolean {
  return OVER.includes(state);
}

export function signalName(number: number): string {
  return SIGNALS[number] ?? `signal ${number}`;
}

/** The shortest true word for an end: `exit 1`, `SIGKILL`, `gpu-oom`; empty where there is nothing to add. */
export function ending(one: Pick<Attempt, "cause" | "signal" | "exit_code">): string {
  if (one.cause && !ORDINARY.includes(one.cause)) return one.cause;
  if (one.signal) return signalName(one.signal);
  return one.exit_code ? `exit ${one.exit_code}` : "";
}

/** Why it waits, where it runs or how it ended. */
export function story(job: WholeJob, now: number): string {
  if (job.state === "submitted") return waitsElsewhere(job);
  if (isWaiting(job.state)) return job.why_held || (job.reason?.sentence ?? "");
  const remark = job.reason?.sentence ?? "";
  if (job.state === "suspended") return remark || "Is suspended";
  if (!isOver(job.state)) {
    const where = placeInWords(job);
    const on = where ? ` on ${where}` : " without a GPU";
    return `Runs${on} for ${duration(ranSeconds(job, now))}${remark && `; ${remark}`}`;
  }
  const how = job.state === "failed" || job.state === "cancelled" ? ending(job) : "";
  const took = job.seconds === null ? "" : ` after ${duration(job.seconds)}`;
  return `${VERBS[job.state]!}${how ? ` (${how})` : ""}${took}${job.explanation ? `: ${job.explanation}` : ""}`;
}

/** Whether an attempt was handed to another system and has not started there. */
export function isSubmitted(one: Attempt): boolean {
  return one.backend !== "" && !one.node && one.ended_at === null;
}

function waitsElsewhere(job: WholeJob): string {
  return withStart(job.reason?.sentence || `waits in the queue of ${systemName(job.on)}`, job.reason?.until_at);
}

/** Another system may tell when it means to start a job. */
export function withStart(sentence: string, at: string | null | undefined): string {
  return at ? `${sentence}; it may start at about ${clock(at)}` : sentence;
}
