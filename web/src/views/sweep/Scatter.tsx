import { useMemo, useState } from "preact/hooks";
import type { Axis } from "./axes";
import { Legend } from "./Legend";
import type { Marks, Style } from "./marks";
import type { Model } from "./model";
import { openTrial } from "./opening";
import { Plot } from "./Plot";
import { NO_SHADE, SHADES, type Ranking } from "./ranking";
import type { Trial } from "./shapes";
import { Tip } from "./Tip";

const OUT = 0;
const BEST = SHADES + 2;
const STYLES: Style[] = [
  { shape: "dot", colour: "--shade-out", size: 2 },
  { shape: "cross", colour: "--shade-none", size: 3 },
  ...Array.from({ length: SHADES }, (_, shade) => ({ shape: "dot" as const, colour: `--shade-${shade + 1}`, size: 3.2, opacity: 0.85 })),
  { shape: "ring", colour: "--ink", size: 6 },
];

/** Any two of the parameters and metrics against each other. */
export function Scatter({ model }: { model: Model }) {
  const [xKey, chooseX] = useState("");
  const [yKey, chooseY] = useState("");
  const axes = model.axes.value;
  const goals = model.space.value.metrics.length;
  const isFront = goals > 1;
  const metrics = axes.filter((axis) => axis.goal);
  const x = axes.find((axis) => axis.key === xKey) ?? (isFront ? metrics[0] : axes[0]);
  const y = axes.find((axis) => axis.key === yKey) ?? (isFront ? metrics[1] : metrics[0]);
  const { trials, passes } = model.drawn.value;
  const best = model.best.value;
  const ranking = model.ranking.value;

  const marks = useMemo(() => marksOf(trials, x, y, passes, ranking, best), [trials, x, y, passes, ranking, best]);
  const isJoined = goals === 2 && x?.goal && y?.goal && x !== y; // of three the front is no line
  const line = useMemo(() => (isJoined && x && y ? front(trials, best, x, y) : null), [trials, best, x, y, isJoined]);
  if (!x || !y) return null;
  return (
    <figure class="panel sweep-figure">
      <figcaption>
        <h2>Scatter</h2>
        <Choice label="across" value={x.key} axes={axes} choose={chooseX} />
        <Choice label="up" value={y.key} axes={axes} choose={chooseY} />
      </figcaption>
      <div class="sweep-plot-box">
        <Plot
          label={`${y.name} against ${x.name}`}
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
      <Legend styles={[{ ...STYLES[BEST]!, word: isFront ? "Pareto front" : "best" }]} line={line ? "reached by the front" : ""} isShaded />
    </figure>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  axes: readonly Axis[];
  choose: (key: string) => void;
}

function Choice({ label, value, axes, choose }: ChoiceProps) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        {axes.map((axis) => (
          <option key={axis.key} value={axis.key}>
            {axis.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function marksOf(
  trials: readonly Trial[],
  x: Axis | undefined,
  y: Axis | undefined,
  passes: Uint8Array,
  { shades }: Ranking,
  best: ReadonlySet<number>,
): Marks {
  const marks = { x: new Float64Array(trials.length), y: new Float64Array(trials.length), styles: new Uint8Array(trials.length) };
  trials.forEach((trial, index) => {
    const isDrawn = trial.state !== "open";
    marks.x[index] = (isDrawn && x ? x.of(trial) : null) ?? NaN;
    marks.y[index] = (isDrawn && y ? y.of(trial) : null) ?? NaN;
    const shade = shades[index]!;
    if (!passes[index]) marks.styles[index] = OUT;
    else if (best.has(trial.number)) marks.styles[index] = BEST;
    else marks.styles[index] = shade === NO_SHADE ? 1 : shade + 2;
  });
  return marks;
}

/** From one trial of the front to the next. */
function front(trials: readonly Trial[], best: ReadonlySet<number>, x: Axis, y: Axis): { x: number[]; y: number[] } {
  const on = trials
    .filter((trial) => best.has(trial.number) && x.of(trial) !== null && y.of(trial) !== null)
    .sort((a, b) => x.of(a)! - x.of(b)!);
  return { x: on.map((trial) => x.of(trial)!), y: on.map((trial) => y.of(trial)!) };
}
