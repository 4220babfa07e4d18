import { useState } from "preact/hooks";
import { change } from "../../acts";
import type { Job } from "../../api/types";
import { StateBadge } from "../../parts/StateBadge";
import { place, placeInWords } from "../../places";
import { to } from "../../router";
import { now } from "../../state/clock";
import { isReadOnly } from "../../state/session";
import { ago, clock, duration } from "../../words";
import { chosen, toggle } from "./selection";

interface Props {
  place: number;
  top: number;
  height: number;
  job: Job | undefined; // not read yet
  isCurrent: boolean;
  canDrag: boolean;
  refresh: () => void;
}

const KIND = "application/x-dibs-job";

export function Row({ place: number, top, height, job, isCurrent, canDrag, refresh }: Props) {
  const style = { transform: `translateY(${top}px)`, height: `${height}px` };
  const [isOver, setOver] = useState(false);
  if (!job) return <div class="job-row" role="row" aria-rowindex={number + 2} style={style} />;
  const isDraggable = canDrag && !isReadOnly.value && job.state === "queued";
  const drop = async (event: DragEvent) => {
    setOver(false);
    const moved = Number(event.dataTransfer?.getData(KIND));
    if (moved && moved !== job.id && (await change(moved, { before: job.id }))) refresh();
  };
  const accept = (event: DragEvent) => {
    if (!isDraggable || !event.dataTransfer?.types.includes(KIND)) return;
    event.preventDefault();
    setOver(true);
  };
  const classes = ["job-row", isCurrent && "is-current", isOver && "is-over", chosen.value.has(job.id) && "is-chosen"];
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      role="row"
      aria-rowindex={number + 2}
      style={style}
      draggable={isDraggable}
      onDragStart={(event) => event.dataTransfer?.setData(KIND, String(job.id))}
      onDragOver={accept}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => void drop(event)}
    >
      <span role="cell">
        <input type="checkbox" aria-label={`choose job ${job.id}`} checked={chosen.value.has(job.id)} onChange={() => toggle(job.id)} />
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

function took(job: Job): string {
  if (job.seconds !== null) return duration(job.seconds);
  if (job.started_at && !job.ended_at && job.state !== "queued") {
    return duration((now.value - Date.parse(job.started_at)) / 1000);
  }
  return "";
}
