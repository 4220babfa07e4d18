// What the parts of the view have in common: the trials, the axes they stand on, and what is chosen of them.
import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { axesOf, type Axis, type Space } from "./axes";
import { passing, type Brushes } from "./brushes";
import { late } from "./late";
import { ranked, type Ranking } from "./ranking";
import type { Sweep, Trial } from "./shapes";

export interface Model {
  trials: ReadonlySignal<readonly Trial[]>;
  space: ReadonlySignal<Space>;
  axes: ReadonlySignal<Axis[]>;
  ranking: ReadonlySignal<Ranking>; // by the first metric
  best: ReadonlySignal<ReadonlySet<number>>; // numbers of trials: the best one, or the front
  isLog: Signal<boolean>; // the metrics' axes
  brushes: Signal<Brushes>;
  passes: ReadonlySignal<Uint8Array>; // for each trial whether it stands in every brush
  drawn: ReadonlySignal<Drawn>; // the same for the charts, which follow a brush somewhat later
  pointed: Signal<number | null>; // the number of the trial under the pointer
}

export interface Drawn {
  trials: readonly Trial[];
  passes: Uint8Array;
}

const BEHIND = 80; // milliseconds: who drags a brush looks at the brush, and the charts must not hold it up

export function modelOf(sweep: ReadonlySignal<Sweep | null>, list: ReadonlySignal<readonly Trial[] | null>): Model {
  // As text: the sweep is read again whenever a trial ends, and mostly asks for the same as before.
  const asked = computed(() => JSON.stringify({ parameters: sweep.value?.spec.parameters ?? [], metrics: sweep.value?.metrics ?? [] }));
  const space = computed(() => JSON.parse(asked.value) as Space);
  const bestOnes = computed(() => sweep.value?.best.map((trial) => trial.number).join() ?? "");

  const trials = computed(() => list.value ?? []);
  const isLog = signal(false);
  const brushes = signal<Brushes>(new Map());
  const axes = computed(() => axesOf(space.value, trials.value, isLog.value));
  const passes = computed(() => passing(trials.value, axes.value, brushes.value));
  return {
    trials,
    space,
    axes,
    ranking: computed(() => ranked(trials.value, space.value.metrics[0])),
    best: computed(() => new Set(bestOnes.value ? bestOnes.value.split(",").map(Number) : [])),
    isLog,
    brushes,
    passes,
    drawn: late(computed(() => ({ trials: trials.value, passes: passes.value })), BEHIND),
    pointed: signal<number | null>(null),
  };
}
