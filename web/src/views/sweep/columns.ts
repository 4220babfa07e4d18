// The columns of the leaderboard, and the order of its rows.
import { number, type Space } from "./axes";
import { isCompared, resultsOf, type Trial } from "./shapes";

export interface Column {
  key: string; // in the address: `by=lr`
  label: string;
  width: number; // pixels, at least
  grows: boolean;
  text: (trial: Trial) => string;
  value: (trial: Trial) => number | string | null; // what it is sorted by
  isDown: boolean; // the largest comes first, until the user reverses it
}

export const NUMBER = "#";
const GAP = 12; // pixels between two columns and at the sides, as in sweep.css

export function columnsOf({ parameters, metrics }: Space): Column[] {
  return [
    { key: NUMBER, label: "trial", width: 64, grows: false, text: (one) => String(one.number), value: (one) => one.number, isDown: false },
    { key: "state", label: "state", width: 92, grows: false, text: (one) => one.state, value: (one) => one.state, isDown: false },
    ...metrics.map(({ name, goal }, place) => ({
      ...{ key: `m ${name}`, label: name, width: 92, grows: true, isDown: goal === "max" },
      text: (one: Trial) => (resultsOf(one)?.[place] === undefined ? "" : number(resultsOf(one)![place]!)),
      value: (one: Trial) => (isCompared(one) ? resultsOf(one)![place]! : null),
    })),
    ...parameters.map(({ name }) => ({
      ...{ key: `p ${name}`, label: name, width: 84, grows: true, isDown: false },
      text: (one: Trial) => one.point[name] ?? "none",
      value: (one: Trial) => comparable(one.point[name] ?? null),
    })),
    { key: "took", label: "took", width: 76, grows: false, text: () => "", value: (one) => one.seconds, isDown: true },
    { key: "job", label: "job", width: 64, grows: false, text: () => "", value: (one) => one.job, isDown: false },
  ];
}

/** The grid of a row, and how wide it is at least; where that is too wide, the table scrolls. */
export function layout(columns: readonly Column[]): { gridTemplateColumns: string; minWidth: string } {
  const widths = columns.map(({ width, grows }) => (grows ? `minmax(${width}px, 1fr)` : `${width}px`));
  const all = columns.reduce((sum, { width }) => sum + width + GAP, 0);
  return { gridTemplateColumns: widths.join(" "), minWidth: `${all + GAP}px` };
}

/** Those without a value come last whichever way it is turned; among equals the earlier trial comes first. */
export function sorted(trials: readonly Trial[], column: Column, isDown: boolean): Trial[] {
  const sign = isDown ? -1 : 1;
  const valued = trials.map((trial) => ({ trial, value: column.value(trial) }));
  valued.sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null) || a.trial.number - b.trial.number;
    return sign * compared(a.value, b.value) || a.trial.number - b.trial.number;
  });
  return valued.map((one) => one.trial);
}

function comparable(text: string | null): number | string | null {
  if (text === null) return null;
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function compared(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
