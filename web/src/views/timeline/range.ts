// What is asked of the daemon: somewhat more than is in sight, so that not every step to the side asks again.
import type { Item } from "./rows";
import { edges, type Sight } from "./sight";

export interface Range {
  since: number; // milliseconds since the epoch
  until: number | null; // null: now, and what comes
}

const MORE = 0.5; // of the span, on either side
const TOO_WIDE = 2.5; // spans: where a part was left out, ask for less

export function rangeFor(sight: Sight, now: number): Range {
  const [first, last] = edges(sight, now);
  const until = last + MORE * sight.span;
  return { since: first - MORE * sight.span, until: until >= now ? null : until };
}

/** Whether what was read of this range, complete from a moment on, will do for what is in sight. */
export function isEnough(range: Range, sight: Sight, now: number, completeFrom: number): boolean {
  const [first, last] = edges(sight, now);
  if (range.since > first || (range.until !== null && range.until < Math.min(last, now))) return false;
  return completeFrom <= first || (range.until ?? now) - range.since <= TOO_WIDE * sight.span;
}

/** The oldest are left out of an answer that is too long: what ended after the first that is in it is all there. */
export function completeSince(items: readonly Item[], isPartial: boolean): number {
  if (!isPartial) return -Infinity;
  return items.reduce((first, item) => Math.min(first, item.ended_at ? Date.parse(item.ended_at) : Infinity), Infinity);
}
