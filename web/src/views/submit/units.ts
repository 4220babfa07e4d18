// What people write (12G, 2h, 22:00, 1-16%4) into what the API takes. What cannot be read raises one sentence.

/** A sentence about what was written, to stand beside it. */
export class Unreadable extends Error {}

const FACTORS: Record<string, number> = { "": 1024 ** 3, K: 1024, M: 1024 ** 2, G: 1024 ** 3, T: 1024 ** 4 };
const SECONDS: Record<string, number> = { w: 604_800, d: 86_400, h: 3600, m: 60, s: 1 };
const LONGEST = 3.2e9; // seconds
const MOST_TASKS = 5000;

/** Bytes. G means GiB, and so does a bare number. */
export function readSize(text: string): number {
  const match = /^(\d{1,12}(?:\.\d{1,12})?)\s*([KMGT]?)(?:i?B)?$/i.exec(text.trim());
  const bytes = match ? Math.floor(Number(match[1]) * FACTORS[match[2]!.toUpperCase()]!) : 0;
  if (bytes < 1 || bytes > Number.MAX_SAFE_INTEGER) throw new Unreadable("Write it like 12G or 900M.");
  return bytes;
}

/** Seconds, from `2h`, `1h30m`, `90s`, `45` (minutes), `01:30:00`, `2-12` (days and hours). */
export function readDuration(text: string): number {
  const seconds = secondsOf(text.trim().toLowerCase());
  if (!(seconds > 0 && seconds <= LONGEST)) throw new Unreadable("Write it like 2h, 1h30m, 90s, or 45 for minutes.");
  return seconds;
}

function secondsOf(text: string): number {
  if (/^\d{1,9}(\.\d{1,9})?$/.test(text)) return Number(text) * 60;
  const days = /^(\d{1,6})-(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?$/.exec(text);
  if (days) return together(days.slice(1), [86_400, 3600, 60, 1]);
  const clock = /^(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})$/.exec(text);
  if (clock) return together(clock.slice(1), [3600, 60, 1]);
  const words = [...text.matchAll(/(\d{1,9}(?:\.\d{1,9})?)\s*(w|d|h|m|s)[a-z]*\s*,?\s*/gy)];
  if (words.map((word) => word[0]).join("") !== text) return NaN;
  return words.reduce((sum, word) => sum + Number(word[1]) * SECONDS[word[2]!]!, 0);
}

function together(numbers: (string | undefined)[], factors: number[]): number {
  return numbers.reduce((sum, number, place) => sum + Number(number ?? 0) * factors[place]!, 0);
}

/** A part of one card, as the API writes it: `0.5` or `1/3`. */
export function readShare(text: string): string {
  const match = /^(\d{0,9}\.?\d{1,9}|(\d{1,9})\/(\d{1,9}))$/.exec(text.trim());
  const value = !match ? 0 : match[2] ? Number(match[2]) / Number(match[3]) : Number(match[1]);
  if (!(value > 0 && value <= 1)) throw new Unreadable("Write it like 0.5 or 1/3.");
  return text.trim().replace(/^\./, "0.");
}

export function readCount(text: string, least: number, most: number): number {
  const number = Number(text.trim());
  if (!/^-?\d{1,7}$/.test(text.trim()) || number < least || number > most) {
    throw new Unreadable(`It is a whole number from ${least.toLocaleString("en")} to ${most.toLocaleString("en")}.`);
  }
  return number;
}

export function readWords(text: string): string[] {
  return [...new Set(text.split(",").map((word) => word.trim()).filter(Boolean))];
}

/** Not before: `22:00`, `2026-12-01 08:00`, `+2h`, `tomorrow`; by the clock of this browser. */
export function readBegin(text: string, now: Date): string {
  const moment = momentOf(text.trim().toLowerCase(), now);
  if (!moment || Number.isNaN(moment.getTime())) throw new Unreadable("Write it like 22:00, 2026-12-01 08:00, +2h or tomorrow.");
  return moment.toISOString();
}

function momentOf(text: string, now: Date): Date | null {
  if (text.startsWith("+")) return new Date(now.getTime() + 1000 * readDuration(text.slice(1)));
  if (text === "tomorrow") return new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1);
  const clock = /^(\d{1,2}):(\d{2})$/.exec(text);
  if (clock && Number(clock[1]) < 24 && Number(clock[2]) < 60) {
    const moment = new Date(now);
    moment.setHours(Number(clock[1]), Number(clock[2]), 0, 0);
    if (moment <= now) moment.setDate(moment.getDate() + 1);
    return moment;
  }
  return /^\d{4}-\d{2}-\d{2}([t ]\d{2}:\d{2}(:\d{2})?(z|[+-]\d{2}:\d{2})?)?$/.test(text)
    ? new Date(text.length > 10 ? text.replace(" ", "T").toUpperCase() : `${text}T00:00`)
    : null;
}

export interface Tasks {
  numbers: number[];
  most: number | null; // so many at once
}

/** `1-16`, `1-16%4`, `1,3,5-9:2`. */
export function readArray(text: string): Tasks {
  const wrong = new Unreadable("Write it like 1-16, 1-16%4 or 1,3,5-9:2.");
  const [ranges = "", most, ...more] = text.trim().split("%");
  if (more.length || (most !== undefined && !/^[1-9]\d{0,5}$/.test(most))) throw wrong;
  const numbers = new Set<number>();
  for (const part of ranges.split(",")) {
    const match = /^(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$/.exec(part.trim());
    if (!match) throw wrong;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    const step = match[3] === undefined ? 1 : Number(match[3]);
    if (last < first || step < 1) throw wrong;
    if ((last - first) / step + numbers.size >= MOST_TASKS) throw new Unreadable(`An array has at most ${MOST_TASKS.toLocaleString("en")} tasks.`);
    for (let number = first; number <= last; number += step) numbers.add(number);
  }
  return { numbers: [...numbers].sort((a, b) => a - b), most: most === undefined ? null : Number(most) };
}

/** Variables, `NAME=value`, one a line. */
export function readVariables(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const equals = line.indexOf("=");
    if (equals < 1) throw new Unreadable("Write one a line, like SEED=1.");
    found[line.slice(0, equals).trim()] = line.slice(equals + 1);
  }
  return found;
}

/** Bytes and seconds in the words that are read above. */
export function writeSize(bytes: number): string {
  for (const unit of ["T", "G", "M", "K"]) if (bytes % FACTORS[unit]! === 0) return `${bytes / FACTORS[unit]!}${unit}`;
  return `${bytes / 1024}K`;
}

export function writeDuration(seconds: number): string {
  for (const unit of ["d", "h", "m"]) if (seconds % SECONDS[unit]! === 0) return `${seconds / SECONDS[unit]!}${unit}`;
  return `${seconds}s`;
}
