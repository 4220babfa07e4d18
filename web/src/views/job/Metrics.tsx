import { lazy, Suspense } from "preact/compat";
import { useMemo, useRef, useState } from "preact/hooks";
import { CurveControls } from "../../curves/CurveControls";
import { by, isLog, lineOf, number, smoothing } from "../../curves/lines";
import { metricsOf, type JobMetrics, type MetricSeries } from "../../curves/shapes";
import { useLive } from "../../state/useLive";

const CurveChart = lazy(() => import("../../curves/CurveChart")); // uPlot comes with the first chart

const EVERY = 3000; // milliseconds
const MOST_SHOWN = 12; // charts, before the user asks for all

/** What an attempt reports: its curves. */
export function Metrics({ job, attempt, isRunning }: { job: number; attempt: number; isRunning: boolean }) {
  const running = useRef(isRunning);
  running.current = isRunning;
  let final: JobMetrics | null = null; // what was read after its end does not change any more
  const read = async (signal: AbortSignal) => {
    if (final && !running.current) return final;
    const wasRunning = running.current;
    const found = await metricsOf(job, attempt, signal);
    final = wasRunning ? null : found;
    return found;
  };
  const report = useLive(read, [job, attempt], { concerns: (event) => event.job === job, every: EVERY });
  const [text, setText] = useState("");
  const [showsAll, setShowsAll] = useState(false);
  const found = report.data.value;
  if (!found?.series.length) return null;
  const named = found.series.filter((one) => one.name.toLowerCase().includes(text.trim().toLowerCase()));
  const shown = showsAll ? named : named.slice(0, MOST_SHOWN);
  return (
    <section class="panel metrics" aria-label="metrics">
      <div class="metrics-head">
        <h2>Metrics</h2>
        <CurveControls />
        {found.series.length > MOST_SHOWN / 2 && (
          <input type="search" aria-label="names of metrics" placeholder="name" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        )}
      </div>
      {found.notes.map((note) => (
        <p key={note} class="faint">
          {note}
        </p>
      ))}
      <Suspense fallback={null}>
        <div class="charts">
          {shown.map((series) => (
            <Curve key={series.name} series={series} />
          ))}
        </div>
      </Suspense>
      {shown.length < named.length && <button onClick={() => setShowsAll(true)}>all {named.length}</button>}
    </section>
  );
}

function Curve({ series }: { series: MetricSeries }) {
  const look = [by.value, smoothing.value, isLog.value].join();
  const lines = useMemo(() => [lineOf(series, { key: series.name, label: series.name, colour: "--busy" })], [series, look]);
  return (
    <div>
      <CurveChart label={series.name} lines={lines} by={by.value} isLog={isLog.value} />
      <p class="faint curve-words">{summary(series)}</p>
    </div>
  );
}

/** `last 0.31, min 0.3 at step 7, max 1.2` */
function summary(series: MetricSeries): string {
  const bad = series.not_finite ? `, ${series.not_finite} of ${series.reported} not finite` : "";
  const last = `last ${series.last === null ? "not finite" : number(series.last)}`;
  if (series.min === null || series.max === null) return last + bad;
  return `${last}, min ${number(series.min)} at step ${number(series.min_step ?? 0)}, max ${number(series.max)}${bad}`;
}
