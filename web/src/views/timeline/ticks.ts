// The marks of a time axis, at times that people would choose.
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 5, 15, 30].map((number) => number * SECOND),
  ...[1, 2, 5, 15, 30].map((number) => number * MINUTE),
  ...[1, 2, 3, 6, 12].map((number) => number * HOUR),
  ...[1, 2, 7, 14, 28, 56, 112].map((number) => number * DAY),
];
const DISTANCE = 84; // pixels between two marks

export interface Tick {
  at: number;
  label: string;
  isDay: boolean;
}

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const second = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export function ticks(first: number, last: number, width: number): Tick[] {
  const step = STEPS.find((one) => (one / (last - first)) * width >= DISTANCE) ?? STEPS[STEPS.length - 1]!;
  const found: Tick[] = [];
  for (let at = begin(first, step); at <= last; at = next(at, step)) {
    if (at < first) continue;
    const date = new Date(at);
    const isDay = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
    found.push({ at, isDay, label: (isDay ? day : step < MINUTE ? second : minute).format(date) });
  }
  return found;
}

/** Counted from a midnight of this clock, so that the marks stand at its full hours. */
function begin(first: number, step: number): number {
  const date = new Date(first);
  const midnight = date.setHours(0, 0, 0, 0);
  if (step >= DAY) return date.setDate(date.getDate() - (Math.floor(midnight / DAY) % (step / DAY)));
  return midnight + Math.floor((first - midnight) / step) * step;
}

/** A day is not always 24 hours long. */
function next(at: number, step: number): number {
  if (step < DAY) {
    const later = at + step;
    const midnight = new Date(later).setHours(0, 0, 0, 0);
    return midnight > at ? midnight : later;
  }
  const date = new Date(at);
  date.setHours(12, 0, 0, 0);
  date.setDate(date.getDate() + step / DAY);
  return date.setHours(0, 0, 0, 0);
}
