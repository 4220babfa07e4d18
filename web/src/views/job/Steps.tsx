import type { Attempt, WholeJob } from "../../api/types";
import { attemptSeconds, ranSeconds, suspendedIn } from "../../elapsed";
import { progressWords } from "../../parts/RunBar";
import { now } from "../../state/clock";
import { duration } from "../../words";
import { ending, isOver, isSubmitted } from "./story";

const MOST = 60; // attempts that still can be told apart
const SHORT = 500; // milliseconds of waiting that are not shown

interface Part {
  kind: "wait" | "run" | "good" | "bad" | "left" | "still";
  seconds: number;
  says: string;
}

/** From the queue to the end: waiting, running, waiting for the next attempt. */
export function Steps({ job }: { job: WholeJob }) {
  const parts = partsOf(job, now.value);
  if (!parts.length) return null;
  const progress = progressWords(job, now.value);
  const says = [...parts.map((part) => part.says), ...(progress ? [progress] : [])];
  return (
    <section class="panel" aria-label="course">
      <Bar parts={isOver(job.state) ? parts : againstEnd(job, parts)} says={says.join(", then ")} />
      <p class="faint steps-words">{says.length <= 6 ? says.join(" → ") : `${says[0]} → … → ${says.at(-1)}`}</p>
    </section>
  );
}

function Bar({ parts, says }: { parts: Part[]; says: string }) {
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!total) return null;
  return (
    <div class="steps" role="img" aria-label={says}>
      {parts.map((part, place) => (
        <span key={place} class={`step step-${part.kind}`} style={{ flexGrow: part.seconds / total }} title={part.says} />
      ))}
    </div>
  );
}

/** The running attempt and what is left: by its own progress, or of its time limit. Where no end is known there is no bar: it
 * would always be full. */
function againstEnd(job: WholeJob, parts: Part[]): Part[] {
  const last = parts.at(-1)!;
  const ran = ranSeconds(job, now.value);
  if (ran === null || (last.kind !== "run" && last.kind !== "still")) return [];
  if (job.progress !== null) {
    const done = { ...last, seconds: job.progress };
    return [done, { kind: "left", seconds: 1 - job.progress, says: progressWords(job, now.value) }];
  }
  if (job.time_limit_seconds === null) return [];
  const seconds = Math.max(0, job.time_limit_seconds - ran);
  return [{ ...last, seconds: ran }, { kind: "left", seconds, says: `${duration(seconds)} left` }];
}

function partsOf(job: WholeJob, at: number): Part[] {
  const parts: Part[] = [];
  let since = Date.parse(job.queued_at);
  for (const one of job.attempts_list.slice(-MOST)) {
    const began = Date.parse(one.started_at);
    const ended = one.ended_at ? Date.parse(one.ended_at) : at;
    if (isSubmitted(one)) break; // it waits there as it did here
    if (began > since + SHORT) parts.push(waited((began - since) / 1000));
    parts.push(...courseOf(one, at, job.time_limit_seconds));
    since = ended;
  }
  const last = job.attempts_list.at(-1);
  const isWaiting = !isOver(job.state) && (last?.ended_at !== null || isSubmitted(last));
  if (isWaiting && at > since + SHORT) parts.push(waited((at - since) / 1000, "waits"));
  return parts;
}

function waited(seconds: number, word = "waited"): Part {
  return { kind: "wait", seconds, says: `${word} ${duration(seconds)}` };
}

/** An attempt: as one part, or as several between which it was suspended. */
function courseOf(one: Attempt, at: number, limit: number | null): Part[] {
  const kind = one.ended_at ? (one.cause ? "bad" : "good") : "run";
  const until = one.ended_at ? Date.parse(one.ended_at) : at;
  const found: Part[] = [];
  let since = Date.parse(one.started_at);
  for (const { begin, end } of suspendedIn(one)) {
    const [ran, still] = [Math.max(0, begin - since) / 1000, Math.max(0, Math.min(end, until) - begin) / 1000];
    found.push({ kind, seconds: ran, says: `ran ${duration(ran)}` });
    found.push({ kind: "still", seconds: still, says: `${end === Infinity ? "suspended for" : "suspended"} ${duration(still)}` });
    since = end;
  }
  if (since === Infinity) return found;
  const seconds = Math.max(0, until - since) / 1000;
  return [...found, { kind, seconds, says: lastOf(one, seconds, found.length ? attemptSeconds(one, at) : null, limit) }];
}

/** `runs for 3m of 1h`, `ran 3m (exit 1)`; `all` is how long it ran beside its suspensions, null where there was none. */
function lastOf(one: Attempt, seconds: number, all: number | null, limit: number | null): string {
  if (one.ended_at) return `ran ${duration(seconds)}${one.cause ? ` (${ending(one) || one.cause})` : ""}`;
  const of = limit === null ? "" : all === null ? ` of ${duration(limit)}` : `, ${duration(all)} of ${duration(limit)} in all`;
  return `runs for ${duration(seconds)}${of}`;
}
