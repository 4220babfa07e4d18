// How good each trial is among the others, by the first metric. It decides the colour, and who is drawn on top.
import { resultsOf, type Metric, type Trial } from "./shapes";

export const SHADES = 8; // --shade-1, the worst, to --shade-8 of sweep.css
export const NO_SHADE = SHADES; // of those without a value

export interface Ranking {
  order: number[]; // places in the list of trials, the worst first: the best are drawn last
  shades: Uint8Array; // for each trial, from 0 (worst) to SHADES - 1
}

export function ranked(trials: readonly Trial[], metric: Metric | undefined): Ranking {
  const value = (index: number) => resultsOf(trials[index]!)?.[0];
  const sign = metric?.goal === "max" ? 1 : -1;
  const all = trials.map((_, index) => index);
  const valued = all.filter((index) => value(index) !== undefined).sort((a, b) => sign * (value(a)! - value(b)!));
  const shades = new Uint8Array(trials.length).fill(NO_SHADE);
  valued.forEach((index, rank) => (shades[index] = Math.min(SHADES - 1, Math.floor((SHADES * (rank + 1)) / valued.length))));
  return { order: [...all.filter((index) => value(index) === undefined), ...valued], shades };
}
