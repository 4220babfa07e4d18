// Another place in the queue for a job that waits. A place has a priority: a change of it is said before it is done.
import { change } from "../../acts";
import type { Job } from "../../api/types";
import { confirm } from "../../parts/Confirm";
import { sayError } from "../../state/toasts";
import type { JobPages } from "./pages";

export type Side = "before" | "behind";
export type Target = "top" | "up" | "down" | "bottom";

/** Put a job before or behind another one. Returns whether it was done. */
export async function moveBeside(pages: JobPages, job: Job, side: Side, other: Job): Promise<boolean> {
  if (job.id === other.id) return false;
  if (job.priority !== other.priority) {
    const text =
      `Job ${other.id} has priority ${other.priority}. To stand ${side} it, job ${job.id} needs the same:` +
      ` its priority becomes ${other.priority} instead of ${job.priority}.`;
    if (!(await confirm(`Move job ${job.id} ${side} job ${other.id}?`, text, "Move"))) return false;
  }
  const isDone = await change(job.id, { [side]: other.id });
  if (isDone) await pages.refresh();
  return isDone;
}

/** Put a job one place up or down, or at an end of the list that is shown. */
export async function moveTo(pages: JobPages, job: Job, target: Target): Promise<boolean> {
  const place = pages.placeOf(job.id);
  const last = (pages.total.value ?? 0) - 1;
  if (place === null || job.state !== "queued") return false;
  const isUp = target === "top" || target === "up";
  if (place === (isUp ? 0 : last)) return false;
  try {
    const next = { top: 0, up: place - 1, down: place + 1, bottom: last }[target];
    const other = await pages.jobAt(next);
    const isDone = other ? await moveBeside(pages, job, isUp ? "before" : "behind", other) : false;
    if (isDone) pages.nextInSight.value = next;
    return isDone;
  } catch (error) {
    sayError(error);
    return false;
  }
}

/** Drop a job between two neighbours: beside the one with its own priority, otherwise beside the one it was dropped on. */
export function moveBetween(pages: JobPages, job: Job, side: Side, on: Job, next: Job | undefined): Promise<boolean> {
  const isNextBetter = next !== undefined && next.id !== job.id && on.priority !== job.priority && next.priority === job.priority;
  if (isNextBetter) return moveBeside(pages, job, side === "before" ? "behind" : "before", next);
  return moveBeside(pages, job, side, on);
}
