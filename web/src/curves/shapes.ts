// What the routes of metrics answer with, and how it is asked for.
import { get } from "../api/client";
import type { components } from "../api/schema";

type Schemas = components["schemas"];

export type JobMetrics = Schemas["JobMetricsObject"];
export type MetricSeries = Schemas["MetricSeriesObject"];

const MOST_ROUNDS = 40; // a long file is read in several answers

/** The metrics of one attempt, all that is there. */
export async function metricsOf(job: number, attempt: number, signal: AbortSignal): Promise<JobMetrics> {
  for (let round = 1; ; round++) {
    const found = await get<JobMetrics>(`v1/jobs/${job}/metrics`, { attempt }, signal);
    if (found.is_complete || round === MOST_ROUNDS) return found;
  }
}

/** The same of the last attempts of several jobs. */
export async function metricsOfAll(jobs: readonly number[], query: { name?: string; points: number }, signal: AbortSignal): Promise<JobMetrics[]> {
  if (!jobs.length) return [];
  for (let round = 1; ; round++) {
    const { jobs: found } = await get<{ jobs: JobMetrics[] }>("v1/jobs/metrics", { ids: jobs.join(), ...query }, signal);
    if (found.every((one) => one.is_complete) || round === MOST_ROUNDS) return found;
  }
}
