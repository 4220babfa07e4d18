import { Fragment } from "preact";
import type { Job, JobPage, Reasons } from "../../api/types";
import { ranSeconds } from "../../elapsed";
import { progressWords, RunBar } from "../../parts/RunBar";
import { StateBadge } from "../../parts/StateBadge";
import { placeInWords } from "../../places";
import { to } from "../../router";
import { now } from "../../state/clock";
import { ago, duration, jobNumber } from "../../words";
import { ending } from "../job/story";
import { Reason } from "./Reason";

const MOST_OTHERS = 4; // reasons

interface Props {
  title: string;
  total: number;
  page: Pick<JobPage, "jobs"> | null;
  filter: string;
  empty: string;
  isDense: boolean; // one line a job
  why?: Reasons | undefined; // those of one reason stand beside each other
}

/** The first few jobs of a kind, and the way to all of them. */
export function JobLines({ title, total, page, filter, empty, isDense, why }: Props) {
  const jobs = page?.jobs ?? [];
  const reasons = new Map(why?.reasons.flatMap((reason) => reason.jobs.map((id) => [id, reason] as const)));
  const told = new Set(jobs.map((job) => reasons.get(job.id)));
  const others = why?.reasons.filter((reason) => !told.has(reason)).slice(0, MOST_OTHERS) ?? []; // of jobs that are not among these
  return (
    <section class="panel job-list" aria-label={title}>
      <h2>
        {title} <span class="faint">{total.toLocaleString("en")}</span>
        {page && total > jobs.length && <a href={to("jobs", { state: filter })}>all {total.toLocaleString("en")}</a>}
      </h2>
      {page && !jobs.length && <p class="faint">{empty}</p>}
      <ul class="job-lines">
        {jobs.map((job, place) => {
          const reason = reasons.get(job.id);
          const isFirst = reason !== undefined && reason !== reasons.get(jobs[place - 1]?.id ?? 0);
          const note = job.cause ? [ending(job), job.message].filter(Boolean).join(": ") : "";
          return (
            <Fragment key={job.id}>
              {isFirst && (
                <li class="job-reason">
                  <Reason reason={reason} isPartial={why!.is_partial} />
                </li>
              )}
              <li class="job-item">
                <a href={to(`job/${job.id}`)} class="job-line">
                  <span class="faint job-number">{jobNumber(job)}</span>
                  <span class="job-title">{job.name || job.command}</span>
                  <StateBadge state={job.state} isEnding={job.is_ending} />
                  <span class="faint job-when">{when(job, isDense)}</span>
                </a>
                <RunBar job={job} />
                {note && (
                  <p class="faint job-note" title={note}>
                    {note}
                  </p>
                )}
              </li>
            </Fragment>
          );
        })}
        {others.map((reason) => (
          <li key={`${reason.code} ${reason.jobs[0]}`} class="job-reason">
            <Reason reason={reason} isPartial={why!.is_partial} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function when(job: Job, isDense: boolean): string {
  if (job.ended_at) return ago(job.ended_at, now.value);
  const seconds = ranSeconds(job, now.value);
  if (seconds !== null) {
    const where = isDense ? "" : placeInWords(job); // the rows of the cards tell it
    const took = duration(seconds);
    const progress = progressWords(job, now.value);
    if (isDense) return progress || took; // the name must have room
    return [where, took, progress].filter(Boolean).join(" · ");
  }
  return isDense ? ago(job.queued_at, now.value) : `added ${ago(job.queued_at, now.value)}`;
}
