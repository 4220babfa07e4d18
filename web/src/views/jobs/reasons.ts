// Why the jobs in the table wait or stand still: of those that start first, as the daemon tells it in one answer.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../../api/client";
import type { Event } from "../../api/stream";
import type { Job } from "../../api/types";
import { useLive } from "../../state/useLive";

interface Reasons {
  reasons: { sentence: string; jobs: number[] }[];
}

const MOST = 200; // jobs of each state
const EVERY = 10_000; // milliseconds: a reason also changes without an event

const sentences = signal<ReadonlyMap<number, string>>(new Map());

/** Keep the reasons fresh for as long as a column shows them. */
export function useReasons(isShown: boolean): void {
  const read = async (signal: AbortSignal) => (isShown ? get<Reasons>("v1/reasons", { limit: MOST }, signal) : null);
  const concerns = (event: Event) => isShown && /^(job|queue|project|gpu|pool)/.test(event.kind);
  const found = useLive(read, [isShown], { concerns, atMost: 1000, ...(isShown && { every: EVERY }) });
  const { value } = found.data;
  useEffect(() => {
    sentences.value = new Map(value?.reasons.flatMap(({ sentence, jobs }) => jobs.map((job) => [job, sentence])));
  }, [value]);
}

export function reasonOf(job: Job): string {
  const isExplained = job.state === "queued" || job.state === "submitted" || job.state === "suspended";
  return isExplained ? (sentences.value.get(job.id) ?? "") : "";
}
