import { lazy, Suspense } from "preact/compat";
import { useMemo, useRef, useState } from "preact/hooks";
import { CurveControls } from "../../curves/CurveControls";
import { by, isLog, lineOf, smoothing, type Line } from "../../curves/lines";
import { metricsOfAll, type JobMetrics } from "../../curves/shapes";
import { go } from "../../router";
import { useLive } from "../../state/useLive";
import type { Model } from "./model";
import { jobOf } from "./opening";
import type { Trial, TrialState } from "./shapes";

const CurveChart = lazy(() => import("../../curves/CurveChart"));

const MOST = 100; // trials: one answer
const BEST = 60; // of them, where there are more; the others are the newest
const POINTS = 100; // of a line
const EVERY = 5000; // milliseconds

const LOOKS: Record<TrialState, Pick<Line, "colour" | "dash" | "opacity">> = {
  complete: { colour: "--busy", opacity: 0.55 },
  reused: { colour: "--faint", opacity: 0.55 },
  open: { colour: "--good" },
  pruned: { colour: "--warn", dash: [5, 3] },
  failed: { colour: "--bad", dash: [2, 3] },
};
const WORDS: [TrialState | "best", string][] = [
  ["best", "best"],
  ["complete", "complete"],
  ["open", "running"],
  ["pruned", "pruned ✕"],
  ["failed", "failed ✕"],
];

/** What the trials report while they run, the pruned ones too. */
export function TrialCurves({ model }: { model: Model }) {
  const trials = chosen(model);
  const jobs = [...new Set(trials.map(jobOf).filter((job): job is number => job !== null))].sort((a, b) => a - b);
  const asked = useRef(jobs);
  asked.current = jobs;
  const isOpen = trials.some((trial) => trial.state === "open");
  const wasOpen = useRef(isOpen);
  wasOpen.current = isOpen;
  const last = useRef<{ jobs: string; found: JobMetrics[] } | null>(null); // of trials that are all over
  const live = useLive(
    async (signal) => {
      const key = asked.current.join();
      if (last.current?.jobs === key && !wasOpen.current) return last.current.found;
      const found = await metricsOfAll(asked.current, { points: POINTS }, signal);
      last.current = { jobs: key, found };
      return found;
    },
    [model],
    { concerns: (event) => event.kind.startsWith("sweep."), every: EVERY, atMost: 2000 },
  );
  const found = live.data.value;
  const names = useMemo(() => namesOf(model, found ?? []), [found, model.space.value]);
  const [name, choose] = useState("");
  const shown = names.includes(name) ? name : names[0];
  const look = [by.value, smoothing.value, isLog.value].join();
  const lines = useMemo(
    () => (found && shown ? linesOf(trials, found, shown, model.best.value) : []),
    [found, shown, trials.map((trial) => trial.number + trial.state).join(), model.best.value, look],
  );
  if (!lines.length || lines.every((line) => line.x.length < 2)) return null; // one point each is what History shows
  const states = new Set<string>(trials.map((trial) => trial.state));
  const total = model.trials.value.length;
  return (
    <figure class="panel sweep-figure sweep-curves">
      <figcaption>
        <h2>Curves</h2>
        <select aria-label="metric of the curves" value={shown} onChange={(event) => choose(event.currentTarget.value)}>
          {names.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
        <CurveControls />
        {total > MOST && <span class="faint">the best {BEST} and the newest {MOST - BEST} of {total.toLocaleString("en")} trials</span>}
      </figcaption>
      <Suspense fallback={null}>
        <CurveChart label={shown!} lines={lines} by={by.value} isLog={isLog.value} height={280} open={(key) => go(`job/${key}`)} />
      </Suspense>
      <ul class="sweep-legend" aria-label="legend of the curves">
        {WORDS.filter(([state]) => state === "best" || states.has(state)).map(([state, word]) => (
          <li key={state}>
            <svg viewBox="0 0 16 16" aria-hidden="true" style={{ color: `var(${state === "best" ? "--ink" : LOOKS[state].colour})` }}>
              <path d="M1 8h14" stroke-dasharray={state === "best" ? undefined : LOOKS[state].dash?.join(" ")} />
            </svg>
            {word}
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** The trials whose curves are drawn: all, or the best and the newest. */
function chosen(model: Model): Trial[] {
  const trials = model.trials.value;
  if (trials.length <= MOST) return [...trials];
  const { order } = model.ranking.value;
  const best = order.slice(-BEST).map((place) => trials[place]!);
  const rest = trials.filter((trial) => !best.includes(trial));
  return [...rest.slice(-(MOST - BEST)), ...best];
}

/** The sweep's own metrics first. */
function namesOf(model: Model, found: JobMetrics[]): string[] {
  const all = new Set(found.flatMap((one) => one.series.map((series) => series.name)));
  const own = model.space.value.metrics.map((metric) => metric.name).filter((name) => all.has(name));
  return [...new Set([...own, ...all])];
}

function linesOf(trials: Trial[], found: JobMetrics[], name: string, best: ReadonlySet<number>): Line[] {
  const byJob = new Map(found.map((one) => [one.job, one.series.find((series) => series.name === name)]));
  const lines: Line[] = [];
  for (const trial of [...trials].sort((a, b) => Number(best.has(a.number)) - Number(best.has(b.number)))) {
    const job = jobOf(trial);
    const series = job === null ? undefined : byJob.get(job);
    if (!series) continue;
    const isBest = best.has(trial.number);
    const isEarly = trial.state === "pruned" || trial.state === "failed";
    lines.push(
      lineOf(series, {
        key: String(job),
        label: `trial ${trial.number} (${isBest ? "best" : trial.state})`,
        ...(isBest ? { colour: "--ink", width: 2.5 } : LOOKS[trial.state]),
        ...(isEarly ? { endsWith: "cross" as const } : {}),
      }),
    );
  }
  return lines;
}
