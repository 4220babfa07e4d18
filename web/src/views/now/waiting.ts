// What waits or is suspended, and why: the first jobs of each state, and each reason once with the numbers of its jobs.
import { get } from "../../api/client";
import type { Counts, Job, JobPage, Reasons, SharedReason } from "../../api/types";
import { useLive } from "../../state/useLive";

export interface Waiting {
  jobs: Job[]; // those that wait for the same beside each other
  why: Reasons;
  suspended: Job[];
  whySuspended: Reasons;
  counts: Counts;
}

const OF_SUSPENDED = ["suspended", "resuming"];
const EVERY = 10_000; // milliseconds: a reason also changes without an event

export function useWaiting(most: number) {
  return useLive((signal) => read(most, signal), [most], {
    concerns: (event) => /^(job|queue|project|gpu|pool)/.test(event.kind),
    every: EVERY,
    atMost: 1000,
  });
}

async function read(most: number, signal: AbortSignal): Promise<Waiting> {
  const ask = (state: string, order: string) => get<JobPage>("v1/jobs", { state, order, limit: most }, signal);
  const { jobs: queued, counts } = await ask("queued", "turn");
  const newest = async (state: "submitted" | "held" | "suspended") => (counts[state] ? (await ask(state, "newest")).jobs : []); // they have no turn
  const isAny = counts.queued || counts.submitted || counts.held || counts.suspended;
  const [submitted, held, suspended, all] = await Promise.all([
    newest("submitted"),
    newest("held"),
    newest("suspended"),
    isAny ? get<Reasons>("v1/reasons", {}, signal) : { reasons: [], is_partial: false },
  ]);
  const some = (isMeant: (reason: SharedReason) => boolean) => ({ ...all, reasons: all.reasons.filter(isMeant) });
  const why = some((reason) => !OF_SUSPENDED.includes(reason.code));
  return {
    jobs: someOfEach([...queued, ...submitted, ...held], why.reasons, most),
    why,
    suspended,
    whySuspended: some((reason) => OF_SUSPENDED.includes(reason.code)),
    counts,
  };
}

/** So many jobs, a few of each reason: the first of all must not hide what the others wait for. */
function someOfEach(jobs: Job[], reasons: SharedReason[], most: number): Job[] {
  const place = new Map(reasons.flatMap((reason, place) => reason.jobs.map((job) => [job, place] as const)));
  const groups: Job[][] = [...reasons.map(() => []), []]; // the last one: of jobs that came a moment after the reasons
  for (const job of jobs) groups[place.get(job.id) ?? reasons.length]!.push(job);
  const taken = groups.map(() => 0);
  for (let left = Math.min(most, jobs.length); left > 0; ) {
    groups.forEach((group, number) => {
      if (left > 0 && taken[number]! < group.length) {
        taken[number]!++;
        left--;
      }
    });
  }
  return groups.flatMap((group, number) => group.slice(0, taken[number]));
}
