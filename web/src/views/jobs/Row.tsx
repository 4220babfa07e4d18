import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Job } from "../../api/types";
import { go, to } from "../../router";
import { isReadOnly } from "../../state/session";
import { sayError } from "../../state/toasts";
import type { Column } from "./columns";
import { moveBetween, type Side } from "./moving";
import type { JobPages } from "./pages";
import { isChosen } from "./selection";

interface Props {
  place: number;
  top: number;
  height: number;
  job: Job | undefined; // not read yet
  columns: Column[];
  isCurrent: boolean;
  isInTurn: boolean; // it can be moved
  pages: JobPages;
  pick: (place: number, job: Job, isRange: boolean) => void;
}

const KIND = "application/x-dibs-job";

export function Row({ place: number, top, height, job, columns, isCurrent, isInTurn, pages, pick }: Props) {
  const style = { transform: `translateY(${top}px)`, height: `${height}px` };
  const [over, setOver] = useState<Side | null>(null); // where a job that is dragged would go
  if (!job) return <BlankRow number={number} style={style} columns={columns} />;
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
  const isPicked = isChosen(job.id);
  const classes = ["job-row", isCurrent && "is-current", over && `is-over-${over}`, isPicked && "is-chosen"];
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
          <input
            type="checkbox"
            aria-label={`choose job ${job.id}`}
            checked={isPicked}
            // Not `change`, which does not know of the shift key.
            onClick={(event) => pick(number, job, event.shiftKey)}
          />
        </label>
      </span>
      <span role="cell">
        <a href={to(`job/${job.id}`)}>{job.id}</a>
      </span>
      {columns.map((column) => (
        <Cell key={column.key} column={column} job={job} />
      ))}
    </div>
  );
}

function Cell({ column, job }: { column: Column; job: Job }) {
  const shown = column.shows(job);
  const title = column.says?.(job) ?? (typeof shown === "string" ? shown : "");
  return (
    <span role="cell" class={classOf(column)} title={title || undefined}>
      {shown}
    </span>
  );
}

function classOf({ key, class: own }: Column): string {
  return own ?? `faint job-${key.replace(/_.*/, "")}`;
}

/** In the place of a row that is read at this moment. */
function BlankRow({ number, style, columns }: { number: number; style: Record<string, string>; columns: Column[] }) {
  return (
    <div class="job-row" role="row" aria-rowindex={number + 2} aria-busy="true" style={style}>
      <span role="cell" />
      <span role="cell" class="job-blank" />
      {columns.map((column) => (
        <span key={column.key} role="cell" class={`${classOf(column)} job-blank`} style={{ width: `${35 + ((number * 17) % 40)}%` }} />
      ))}
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
