// What is chosen on the axes: a stretch of each that has a brush. A trial passes where it stands in all of them.
import type { Axis } from "./axes";
import { place, write } from "./axes";
import type { Trial } from "./shapes";

export interface Brush {
  low: number; // in the unit of its axis
  high: number;
  hasNone: boolean; // also those that have no value here
}

export type Brushes = ReadonlyMap<string, Brush>; // by the axis' key

export function withBrush(brushes: Brushes, key: string, brush: Brush | null): Brushes {
  const changed = new Map(brushes);
  if (brush) changed.set(key, brush);
  else changed.delete(key);
  return changed;
}

/** For each trial whether it passes. */
export function passing(trials: readonly Trial[], axes: readonly Axis[], brushes: Brushes): Uint8Array {
  const passes = new Uint8Array(trials.length).fill(1);
  for (const axis of axes) {
    const brush = brushes.get(axis.key);
    if (!brush) continue;
    trials.forEach((trial, index) => {
      if (passes[index] && !isIn(brush, axis.of(trial))) passes[index] = 0;
    });
  }
  return passes;
}

/** Who draws a brush to the end of an axis means all that comes there, also later. */
export function snapped(axis: Axis, low: number, high: number, hasNone: boolean): Brush {
  if (axis.kind === "category") return { low: Math.ceil(low - 0.5), high: Math.floor(high + 0.5), hasNone };
  return {
    low: place(axis, low) <= 0.005 ? -Infinity : low,
    high: place(axis, high) >= 0.995 ? Infinity : high,
    hasNone,
  };
}

/** `lr from 0.001 to 0.01`. */
export function inWords(axis: Axis, { low, high, hasNone }: Brush): string {
  const isAnywhere = low > high;
  const parts = isAnywhere ? [] : [low > axis.low && `from ${write(axis, low)}`, high < axis.high && `to ${write(axis, high)}`];
  const stretch = low === high ? write(axis, low) : parts.filter(Boolean).join(" ");
  if (isAnywhere) return `${axis.name}: none`;
  return [axis.name, stretch || "any", hasNone && "or none"].filter(Boolean).join(" ");
}

function isIn(brush: Brush, unit: number | null): boolean {
  return unit === null ? brush.hasNone : unit >= brush.low && unit <= brush.high;
}
