import type { Job, JobPage } from "../../api/types";
import { progressWords, RunBar } from "../../parts/RunBar";
import { StateBadge } from "../../parts/StateBadge";
import { placeInWords } from "../../places";
import { to } from "../../router";
import { now } from "../../state/clock";
import { ago, duration } from "../../words";
import { ending } from "../job/story";
import { Why } from "./Why";

interface Props {
  title: string;
  total: number;
  page: Pick<JobPage, "jobs"> | null;
  filter: string;
  empty: string;
  most?: number; // jobs that are shown, where the page has more
  showsWhy?: boolean;
}

/** The first few jobs of a kind, and the way to all of them. */
export function JobLines({ title, total, page, filter, empty, most, showsWhy = false }: Props) {
  const jobs = page?.jobs.slice(0, most) ?? [];
  return (
    <section class="panel" aria-label={title}>
      <h2>
        {title} <span class="faint">{total.toLocaleString("en")}</span>
      </h2>
      {page && !jobs.length && <p class="faint">{empty}</p>}
      <ul class="job-lines">
        {jobs.map((job) => (
          <li key={job.id}>
            <a href={to(`job/${job.id}`)} class="job-line">
              <span class="faint">{job.id}</span>
              <span class="job-title">{job.name || job.command}</span>
              <StateBadge state={job.state} isEnding={job.is_ending} />
              <span class="faint job-when">{when(job)}</span>
            </a>
            <RunBar job={job} />
            {job.cause && <p class="faint job-note">{[ending(job), job.message].filter(Boolean).join(": ")}</p>}
            {showsWhy && <Why job={job} />}
          </li>
        ))}
      </ul>
      {page && total > jobs.length && <a href={to("jobs", { state: filter })}>all {total.toLocaleString("en")}</a>}
    </section>
  );
}

function when(job: Job): string {
  if (job.ended_at) return ago(job.ended_at, now.value);
  if (job.started_at && job.state !== "queued") {
    const where = placeInWords(job);
    const took = duration((now.value - Date.parse(job.started_at)) / 1000);
    return [where, took, progressWords(job, now.value)].filter(Boolean).join(" · ");
  }
  return `added ${ago(job.queued_at, now.value)}`;
}
