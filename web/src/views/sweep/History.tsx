import { useMemo, useState } from "preact/hooks";
import type { Axis } from "./axes";
import { Legend } from "./Legend";
import type { Marks, Style } from "./marks";
import type { Model } from "./model";
import { openTrial } from "./opening";
import { Plot } from "./Plot";
import { isCompared, resultsOf, type Metric, type Trial } from "./shapes";
import { Tip } from "./Tip";

const STYLES: (Style & { word: string })[] = [
  { word: "left out by the brushes", shape: "dot", colour: "--shade-out", size: 2 },
  { word: "failed, without a value", shape: "cross", colour: "--bad", size: 3 },
  { word: "pruned", shape: "triangle", colour: "--warn", size: 3.5 },
  { word: "reused", shape: "ring", colour: "--faint", size: 3 },
  { word: "complete", shape: "dot", colour: "--busy", size: 3, opacity: 0.8 },
  { word: "best", shape: "ring", colour: "--ink", size: 6 },
];
const [OUT, FAILED, PRUNED, REUSED, COMPLETE, BEST] = [0, 1, 2, 3, 4, 5] as const;

/** What came out of one trial after the other, and the best so far. */
export function History({ model }: { model: Model }) {
  const [chosen, choose] = useState(0);
  const metrics = model.space.value.metrics;
  const isFront = metrics.length > 1;
  const metric = metrics[chosen] ?? metrics[0]!;
  const place = metrics.indexOf(metric);
  const { trials, passes } = model.drawn.value;
  const best = model.best.value;
  const y = model.axes.value.find((axis) => axis.key === `m ${metric.name}`);

  const x = useMemo(() => numbersOf(trials), [trials]);
  const line = useMemo(() => bestSoFar(trials, place, metric), [trials, place, metric]);
  const marks = useMemo(() => marksOf(trials, place, passes, best), [trials, place, passes, best]);
  const used = useMemo(() => {
    const seen = new Set(marks.styles.filter((_, mark) => !Number.isNaN(marks.y[mark])));
    const named = STYLES.map((style, index) => (index === BEST && isFront ? { ...style, word: "Pareto front" } : style));
    return named.filter((_, style) => seen.has(style));
  }, [marks, isFront]);
  if (!y) return null;
  return (
    <figure class="panel sweep-figure">
      <figcaption>
        <h2>History</h2>
        {metrics.length > 1 && (
          <select aria-label="metric of the history" value={chosen} onChange={(event) => choose(Number(event.currentTarget.value))}>
            {metrics.map((one, index) => (
              <option key={one.name} value={index}>
                {one.name}
              </option>
            ))}
          </select>
        )}
        <span class="faint">{metrics.length > 1 ? "by trial" : `${metric.name} by trial`}</span>
      </figcaption>
      <div class="sweep-plot-box">
        <Plot
          label={`${metric.name} by the number of the trial, with the best so far`}
          x={x}
          y={y}
          marks={marks}
          styles={STYLES}
          line={line}
          pointed={trials.findIndex((trial) => trial.number === model.pointed.value)}
          point={(mark) => (model.pointed.value = trials[mark]?.number ?? null)}
          open={(mark) => openTrial(trials[mark])}
        />
        <Tip model={model} />
      </div>
      <Legend styles={used} line={line.y.length ? "best so far" : ""} />
    </figure>
  );
}

function numbersOf(trials: readonly Trial[]): Axis {
  const [first, last] = [trials[0]?.number ?? 0, trials[trials.length - 1]?.number ?? 0];
  const of = (trial: Trial) => trial.number;
  return { key: "number", name: "trial", kind: "linear", low: first, high: last, words: [], goal: null, hasNone: false, of };
}

function marksOf(trials: readonly Trial[], place: number, passes: Uint8Array, best: ReadonlySet<number>): Marks {
  const marks = { x: new Float64Array(trials.length), y: new Float64Array(trials.length), styles: new Uint8Array(trials.length) };
  trials.forEach((trial, index) => {
    const value = resultsOf(trial)?.[place];
    marks.x[index] = trial.number;
    marks.y[index] = value ?? (trial.state === "failed" ? -Infinity : NaN); // the failed ones stand at the lower edge
    marks.styles[index] = passes[index] ? styleOf(trial, best) : OUT;
  });
  return marks;
}

function styleOf(trial: Trial, best: ReadonlySet<number>): number {
  if (best.has(trial.number)) return BEST;
  return { open: OUT, failed: FAILED, pruned: PRUNED, reused: REUSED, complete: COMPLETE }[trial.state];
}

function bestSoFar(trials: readonly Trial[], place: number, { goal }: Metric): { x: number[]; y: number[] } {
  const line: { x: number[]; y: number[] } = { x: [], y: [] };
  const better = goal === "min" ? Math.min : Math.max;
  let best: number | null = null;
  for (const trial of trials) {
    if (!isCompared(trial)) continue;
    const value = resultsOf(trial)![place]!;
    if (best !== null && better(best, value) === best) continue; // a line of as few points as it has steps
    best = value;
    line.x.push(trial.number);
    line.y.push(best);
  }
  const last = trials[trials.length - 1];
  if (best !== null && last && line.x[line.x.length - 1] !== last.number) {
    line.x.push(last.number);
    line.y.push(best);
  }
  return line;
}
