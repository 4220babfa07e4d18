// A job that is dragged to another place in the queue: with the mouse by its row, with a finger by its handle.
import { signal } from "@preact/signals";
import { get } from "../../api/client";
import type { Job } from "../../api/types";
import { sayError } from "../../state/toasts";
import { moveBetween, type Side } from "./moving";
import type { JobPages } from "./pages";

/** Where the job would go at this moment. */
interface Drag {
  id: number;
  place: number;
  side: Side;
}

export const dragged = signal<Drag | null>(null);

const STILL = 5; // pixels that a click may slip
const EDGE = 40; // pixels above and below in which the table scrolls
const FASTEST = 16; // pixels a frame

/** Follow the pointer that went down on a row until it is up. Escape gives it up. */
export function follow(down: PointerEvent, id: number, scroller: HTMLElement, height: number, pages: JobPages): void {
  let last = down;
  let frame = 0;
  const isMeant = ({ pointerId }: PointerEvent) => pointerId === down.pointerId;
  const look = () => {
    const { top } = scroller.getBoundingClientRect();
    const rows = (last.clientY - top + scroller.scrollTop) / height;
    const place = Math.max(0, Math.min((pages.total.value ?? 1) - 1, Math.floor(rows)));
    const side = rows - place < 0.5 ? "before" : "behind";
    const now = dragged.value;
    if (now?.place !== place || now.side !== side) dragged.value = { id, place, side };
  };
  const scroll = () => {
    const { top, bottom } = scroller.getBoundingClientRect();
    const beyond = Math.max(0, last.clientY - (bottom - EDGE)) - Math.max(0, top + EDGE - last.clientY);
    scroller.scrollTop += Math.max(-FASTEST, Math.min(FASTEST, beyond / 2));
    look();
    frame = requestAnimationFrame(scroll);
  };
  const move = (event: PointerEvent) => {
    if (!isMeant(event)) return;
    last = event;
    if (frame || Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < STILL) return;
    scroller.setPointerCapture(down.pointerId); // the row may be scrolled away; and what ends as a drag is no click
    scroll();
  };
  const end = () => {
    cancelAnimationFrame(frame);
    dragged.value = null;
    listening.abort();
  };
  const up = (event: PointerEvent) => {
    if (!isMeant(event)) return;
    const at = dragged.value;
    end();
    if (at) void drop(pages, at).catch(sayError);
  };
  const listening = new AbortController();
  const options = { signal: listening.signal };
  document.addEventListener("pointermove", move, options);
  document.addEventListener("pointerup", up, options);
  document.addEventListener("pointercancel", (event) => isMeant(event) && end(), options);
  document.addEventListener("keydown", (event) => event.key === "Escape" && end(), options);
}

async function drop(pages: JobPages, { id, place, side }: Drag): Promise<void> {
  const from = pages.placeOf(id);
  const job = (from === null ? undefined : pages.row(from)) ?? (await get<Job>(`v1/jobs/${id}`)); // it may be out of sight
  const on = await pages.jobAt(place);
  if (on) await moveBetween(pages, job, side, on, pages.row(side === "before" ? place - 1 : place + 1));
}
