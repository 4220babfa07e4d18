import type { Attempt, WholeJob } from "../../api/types";
import { progressWords } from "../../parts/RunBar";
import { now } from "../../state/clock";
import { duration } from "../../words";
import { ending, isOver, isSubmitted } from "./story";

const MOST = 60; // attempts that still can be told apart
const SHORT = 500; // milliseconds of waiting that are not shown

interface Part {
  kind: "wait" | "run" | "good" | "bad" | "left";
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
  if (last.kind !== "run") return [];
  if (job.progress !== null) {
    const done = { ...last, seconds: job.progress };
    return [done, { kind: "left", seconds: 1 - job.progress, says: progressWords(job, now.value) }];
  }
  if (job.time_limit_seconds === null) return [];
  const seconds = Math.max(0, job.time_limit_seconds - last.seconds);
  return [last, { kind: "left", seconds, says: `${duration(seconds)} left` }];
}

function partsOf(job: WholeJob, at: number): Part[] {
  const parts: Part[] = [];
  let since = Date.parse(job.queued_at);
  for (const one of job.attempts_list.slice(-MOST)) {
    const began = Date.parse(one.started_at);
    const ended = one.ended_at ? Date.parse(one.ended_at) : at;
    if (isSubmitted(one)) break; // it waits there as it did here
    if (began > since + SHORT) parts.push(waited((began - since) / 1000));
    parts.push(ran(one, Math.max(0, ended - began) / 1000, job.time_limit_seconds));
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

function ran(one: Attempt, seconds: number, limit: number | null): Part {
  if (!one.ended_at) {
    const of = limit === null ? "" : ` of ${duration(limit)}`;
    return { kind: "run", seconds, says: `runs for ${duration(seconds)}${of}` };
  }
  const how = one.cause ? `ran ${duration(seconds)} (${ending(one) || one.cause})` : `ran ${duration(seconds)}`;
  return { kind: one.cause ? "bad" : "good", seconds, says: how };
}
