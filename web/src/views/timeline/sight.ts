// Which stretch of time can be seen. While it ends at this moment it moves along with the clock.

export interface Sight {
  span: number; // milliseconds
  end: number | null; // null: now
}

export const HOUR = 3_600_000;
const SHORTEST = 10_000;
const LONGEST = 400 * 24 * HOUR;
const LAST = 8.64e12 - 1; // seconds: what a Date can say
const AHEAD = 0.02; // of the span: room on the right of now

/** The first and the last moment in sight. */
export function edges({ span, end }: Sight, now: number): [number, number] {
  const last = end ?? now + AHEAD * span;
  return [last - span, last];
}

/** More (factor below 1) or less of it; the moment `at` stays where it is. */
export function zoomed(sight: Sight, factor: number, at: number, now: number): Sight {
  const [, last] = edges(sight, now);
  const span = Math.min(LONGEST, Math.max(SHORTEST, sight.span * factor));
  return settled({ span, end: at + (last - at) * (span / sight.span) }, now);
}

/** The same from the middle; from now, while that is in sight. */
export function zoomedHere(sight: Sight, factor: number, now: number): Sight {
  const [first, last] = edges(sight, now);
  return zoomed(sight, factor, sight.end === null ? last : (first + last) / 2, now);
}

export function moved(sight: Sight, milliseconds: number, now: number): Sight {
  return settled({ span: sight.span, end: edges(sight, now)[1] + milliseconds }, now);
}

/** Nothing has happened yet behind now. */
function settled({ span, end }: Sight, now: number): Sight {
  return { span, end: end === null || end >= now + AHEAD * span * 0.99 ? null : end };
}

/** From the address: `hours=6&until=1789000000`. */
export function sightFrom(query: URLSearchParams): Sight {
  const hours = Number(query.get("hours"));
  const until = Number(query.get("until"));
  const span = hours > 0 ? Math.min(LONGEST, Math.max(SHORTEST, hours * HOUR)) : 24 * HOUR;
  return { span, end: until > 0 && until < LAST ? until * 1000 : null };
}

export function inAddress({ span, end }: Sight): { hours: string; until: string } {
  return { hours: String(Number((span / HOUR).toPrecision(4))), until: end === null ? "" : String(Math.round(end / 1000)) };
}
