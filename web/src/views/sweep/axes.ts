// Parameters and metrics as axes: where a trial stands on each, and how that is written.
import { resultsOf, type Choice, type Metric, type Range, type Trial } from "./shapes";

export interface Axis {
  key: string; // "lr of parameters" and "lr of metrics" are two
  name: string;
  kind: "linear" | "log" | "category";
  low: number; // in its own unit; of categories the place in the list
  high: number;
  words: readonly string[]; // the categories
  goal: "min" | "max" | null; // of a metric
  hasNone: boolean; // some trial has no value on it
  of: (trial: Trial) => number | null;
}

/** What is tried, and what comes of it. */
export interface Space {
  parameters: (Choice | Range)[];
  metrics: Metric[];
}

/** The axes of a space in the order of its parameters, then its metrics. */
export function axesOf({ parameters, metrics }: Space, trials: readonly Trial[], isLog: boolean): Axis[] {
  const axes = [
    ...parameters.map((one) => ("values" in one ? categories(one, trials) : range(one, trials))),
    ...metrics.map((one, place) => metric(one, place, trials, isLog)),
  ];
  return axes.filter((axis) => axis.high >= axis.low);
}

/** From 0 at the bottom to 1 at the top. */
export function place(axis: Axis, unit: number): number {
  if (axis.kind === "category") return axis.words.length > 1 ? unit / (axis.words.length - 1) : 0.5;
  const [low, high, at] = axis.kind === "log" ? [Math.log(axis.low), Math.log(axis.high), Math.log(unit)] : [axis.low, axis.high, unit];
  return high > low ? (at - low) / (high - low) : 0.5;
}

/** What stands at this place: `place` the other way round. */
export function unitAt(axis: Axis, part: number): number {
  if (axis.kind === "category") return part * Math.max(1, axis.words.length - 1);
  if (axis.kind === "log") return Math.exp(Math.log(axis.low) + part * Math.log(axis.high / axis.low));
  return axis.low + part * (axis.high - axis.low);
}

export function write(axis: Axis, unit: number): string {
  return axis.kind === "category" ? (axis.words[Math.round(unit)] ?? "") : number(unit);
}

/** Four digits are enough to compare by. */
export function number(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** The marks of an axis: not more than so many, at round numbers. */
export function ticks(axis: Axis, most: number): number[] {
  if (axis.kind === "category") {
    const step = Math.ceil(axis.words.length / Math.max(1, most));
    return axis.words.map((_, index) => index).filter((index) => index % step === 0);
  }
  if (axis.low === axis.high) return [axis.low];
  if (axis.kind === "log") {
    const decades = powers(axis.low, axis.high, most);
    if (decades.length > 1) return decades;
  }
  return rounds(axis.low, axis.high, most);
}

function categories({ name, values }: Choice, trials: readonly Trial[]): Axis {
  const words = new Map<string, number>();
  const add = (value: string | null | undefined) => {
    if (value !== null && value !== undefined && !words.has(value)) words.set(value, words.size);
  };
  values.forEach(add);
  for (const trial of trials) add(trial.point[name]);
  const of = (trial: Trial) => words.get(trial.point[name] ?? "") ?? null;
  return {
    ...{ key: `p ${name}`, name, kind: "category", words: [...words.keys()], goal: null, of },
    ...{ low: 0, high: words.size - 1, hasNone: trials.some((trial) => of(trial) === null) },
  };
}

function range({ name, low, high, scale }: Range, trials: readonly Trial[]): Axis {
  const of = (trial: Trial) => finite(trial.point[name]);
  const hasNone = trials.some((trial) => of(trial) === null);
  return { key: `p ${name}`, name, kind: scale === "log" ? "log" : "linear", low, high, words: [], goal: null, hasNone, of };
}

/** From the lowest to the highest value that came out. */
function metric({ name, goal }: Metric, index: number, trials: readonly Trial[], isLog: boolean): Axis {
  const of = (trial: Trial) => resultsOf(trial)?.[index] ?? null;
  let low = Infinity;
  let high = -Infinity;
  let hasNone = false;
  for (const trial of trials) {
    const value = of(trial);
    if (value === null) hasNone ||= trial.state !== "open"; // what runs may still get one
    else {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  const kind = isLog && low > 0 ? "log" : "linear";
  return { key: `m ${name}`, name, kind, low, high, words: [], goal, hasNone, of };
}

function finite(text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

function powers(low: number, high: number, most: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, most)));
  const found: number[] = [];
  for (let power = first; power <= last; power += step) found.push(10 ** power);
  return found;
}

function rounds(low: number, high: number, most: number): number[] {
  const rough = (high - low) / Math.max(1, most - 1);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 5, 10].find((one) => one * size >= rough) ?? 10);
  const found: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}
