import type { Job } from "../../api/types";
import { go, to } from "../../router";
import type { Column } from "./columns";
import { dragged } from "./dragging";
import type { Side } from "./moving";
import { isChosen } from "./selection";

interface Props {
  place: number;
  top: number;
  height: number;
  job: Job | undefined; // not read yet
  columns: Column[];
  isCurrent: boolean;
  over: Side | null; // where a job that is dragged would go
  drag: ((event: PointerEvent, id: number) => void) | null; // null: jobs cannot be moved
  pick: (place: number, job: Job, isRange: boolean) => void;
}

export function Row({ place: number, top, height, job, columns, isCurrent, over, drag, pick }: Props) {
  const style = { transform: `translateY(${top}px)`, height: `${height}px` };
  if (!job) return <BlankRow number={number} style={style} columns={columns} />;
  const isMovable = drag !== null && job.state === "queued";
  const isPicked = isChosen(job.id);
  const isDragged = dragged.value?.id === job.id;
  const classes = ["job-row", isCurrent && "is-current", over && `is-over-${over}`, isPicked && "is-chosen"];
  if (isMovable) classes.push("is-movable", isDragged && "is-dragged");
  const press = (event: PointerEvent) => {
    const target = event.target as Element;
    const isMeant = event.pointerType === "mouse" ? event.button === 0 && !target.closest("label") : target.closest(".job-grip");
    if (isMovable && isMeant) drag(event, job.id);
  };
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      role="row"
      aria-rowindex={number + 2}
      style={style}
      onClick={(event) => {
        const isControl = (event.target as Element).closest("a, label, .job-grip") !== null;
        if (!isControl && !getSelection()?.toString()) go(`job/${job.id}`);
      }}
      onPointerDown={press}
      onDragStart={(event) => isMovable && event.preventDefault()} // the browser's own drag, of a link
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
      {isMovable && <span class="job-grip" aria-hidden="true" />}
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
