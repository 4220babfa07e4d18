import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Job } from "../../api/types";
import { RunBar } from "../../parts/RunBar";
import { StateBadge } from "../../parts/StateBadge";
import { place, placeInWords } from "../../places";
import { go, to } from "../../router";
import { now } from "../../state/clock";
import { isReadOnly } from "../../state/session";
import { sayError } from "../../state/toasts";
import { ago, clock, duration } from "../../words";
import { moveBetween, type Side } from "./moving";
import type { JobPages } from "./pages";
import { chosen, toggle } from "./selection";

interface Props {
  place: number;
  top: number;
  height: number;
  job: Job | undefined; // not read yet
  isCurrent: boolean;
  isInTurn: boolean; // it can be moved
  pages: JobPages;
}

const KIND = "application/x-dibs-job";

export function Row({ place: number, top, height, job, isCurrent, isInTurn, pages }: Props) {
  const style = { transform: `translateY(${top}px)`, height: `${height}px` };
  const [over, setOver] = useState<Side | null>(null); // where a job that is dragged would go
  if (!job) return <BlankRow number={number} style={style} />;
  const isDraggable = isInTurn && !isReadOnly.value && job.state === "queued";
  const drop = async (event: DragEvent) => {
    const side = sideOf(event);
    setOver(null);
    const id = Number(event.dataTransfer?.getData(KIND));
    const moved = await movedJob(pages, id);
    if (moved) await moveBetween(pages, moved, side, job, pages.row(side === "before" ? number - 1 : number + 1));
  };
  const accept = (event: DragEvent) => {
    if (!isDraggable || !event.dataTransfer?.types.includes(KIND)) return;
    event.preventDefault();
    setOver(sideOf(event));
  };
  const classes = ["job-row", isCurrent && "is-current", over && `is-over-${over}`, chosen.value.has(job.id) && "is-chosen"];
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      role="row"
      aria-rowindex={number + 2}
      style={style}
      draggable={isDraggable}
      onClick={(event) => {
        const isControl = (event.target as Element).closest("a, label") !== null;
        if (!isControl && !getSelection()?.toString()) go(`job/${job.id}`);
      }}
      onDragStart={(event) => event.dataTransfer?.setData(KIND, String(job.id))}
      onDragOver={accept}
      onDragLeave={() => setOver(null)}
      onDrop={(event) => void drop(event)}
    >
      <span role="cell">
        <label class="job-pick">
          <input type="checkbox" aria-label={`choose job ${job.id}`} checked={chosen.value.has(job.id)} onChange={() => toggle(job.id)} />
        </label>
      </span>
      <span role="cell">
        <a href={to(`job/${job.id}`)}>{job.id}</a>
      </span>
      <span role="cell" class="job-title" title={job.command}>
        {job.name ? <b>{job.name}</b> : null} <code>{job.command}</code>
      </span>
      <span role="cell" class="faint job-project">
        {job.project}
      </span>
      <span role="cell" title={job.message}>
        <StateBadge state={job.state} isEnding={job.is_ending} />
        <RunBar job={job} />
      </span>
      <span role="cell" class="faint job-gpus" title={placeInWords(job)}>
        {place(job)}
      </span>
      <span role="cell" class="faint job-took">
        {took(job)}
      </span>
      <span role="cell" class="faint job-when" title={clock(job.ended_at ?? job.started_at ?? job.queued_at)}>
        {ago(job.ended_at ?? job.started_at ?? job.queued_at, now.value)}
      </span>
    </div>
  );
}

/** In the place of a row that is read at this moment. */
function BlankRow({ number, style }: { number: number; style: Record<string, string> }) {
  return (
    <div class="job-row" role="row" aria-rowindex={number + 2} aria-busy="true" style={style}>
      <span role="cell" />
      <span role="cell" class="job-blank" />
      <span role="cell" class="job-blank" style={{ width: `${35 + ((number * 17) % 40)}%` }} />
    </div>
  );
}

/** The half of the row that the pointer is on. */
function sideOf(event: DragEvent): Side {
  const { top, height } = (event.currentTarget as HTMLElement).getBoundingClientRect();
  return event.clientY < top + height / 2 ? "before" : "behind";
}

/** The job that is dragged; it may have been scrolled out of sight meanwhile. */
async function movedJob(pages: JobPages, id: number): Promise<Job | null> {
  const place = id ? pages.placeOf(id) : null;
  if (place !== null) return pages.row(place) ?? null;
  return id ? get<Job>(`v1/jobs/${id}`).catch((error: unknown) => (sayError(error), null)) : null;
}

function took(job: Job): string {
  if (job.seconds !== null) return duration(job.seconds);
  if (job.started_at && !job.ended_at && job.state !== "queued") {
    return duration((now.value - Date.parse(job.started_at)) / 1000);
  }
  return "";
}
