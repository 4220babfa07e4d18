// From series to lines of a chart: by step or by time, smoothed, in the colours of the style sheet.
import { signal } from "@preact/signals";
import type { MetricSeries } from "./shapes";

export type By = "step" | "time";

// They hold for all curves of the page while it is open.
export const by = signal<By>("step");
export const smoothing = signal(0); // 0: none, up to MOST_SMOOTH
export const isLog = signal(false);

export const MOST_SMOOTH = 0.98;
const COLOURS = 8; // --curve-1 and so on

export interface Line {
  key: string;
  label: string;
  x: number[]; // upwards
  y: number[];
  colour: string; // a variable of the style sheet
  dash?: number[];
  width?: number;
  opacity?: number;
  endsWith?: "cross"; // what was ended early
}

export function lineOf(series: MetricSeries, about: Omit<Line, "x" | "y">): Line {
  const xs = by.value === "step" ? series.steps : series.at_seconds;
  const order = xs.map((_, place) => place);
  if (xs.some((x, place) => place > 0 && x < xs[place - 1]!)) order.sort((a, b) => xs[a]! - xs[b]! || a - b);
  const points = order.filter((place) => !isLog.value || series.values[place]! > 0);
  return { ...about, x: points.map((place) => xs[place]!), y: smoothed(points.map((place) => series.values[place]!)) };
}

/** The colour of a line among others: those after the eighth are dashed. */
export function styleOf(place: number): Pick<Line, "colour" | "dash"> {
  const round = Math.floor(place / COLOURS) % 3;
  return { colour: `--curve-${(place % COLOURS) + 1}`, ...(round ? { dash: round === 1 ? [6, 4] : [2, 3] } : {}) };
}

/** An exponential moving average without the pull of its first value, as TensorBoard and W&B draw it. */
export function smoothed(values: number[]): number[] {
  const weight = smoothing.value;
  if (!weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

export function number(value: number): string {
  return String(Number(value.toPrecision(4)));
}
