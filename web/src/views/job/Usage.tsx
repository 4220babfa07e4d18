import { lazy, Suspense } from "preact/compat";
import { useRef } from "preact/hooks";
import { get } from "../../api/client";
import { useLive } from "../../state/useLive";
import { duration, size } from "../../words";
import { card } from "./card";
import { Sentence } from "./Sentence";
import type { Series, UsageReport } from "./shapes";

const Chart = lazy(() => import("../../parts/Chart")); // uPlot comes with the first chart

const EVERY = 3000; // milliseconds; the daemon looks once a second

interface Drawn {
  label: string;
  values: (series: Series) => (number | null)[];
  write: (value: number) => string;
  most?: number;
  isBytes?: boolean;
}

const percent = (value: number) => `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`;
const CHARTS: Drawn[] = [
  { label: "GPU load", values: (series) => series.load_percent, write: percent, most: 100 },
  { label: "GPU memory", values: (series) => series.memory_bytes, write: size, isBytes: true },
  { label: "power", values: (series) => series.power_watts, write: (value) => `${Math.round(value)} W` },
  { label: "host CPU", values: (series) => series.cpus, write: (value) => percent(100 * value) },
  { label: "host memory", values: (series) => series.mem_bytes, write: size, isBytes: true },
];

/** What an attempt used: the report card and its course over time. */
export function Usage({ job, attempt, isRunning }: { job: number; attempt: number; isRunning: boolean }) {
  const running = useRef(isRunning);
  running.current = isRunning;
  let final: UsageReport | null = null; // what was read after its end does not change any more
  const read = async (signal: AbortSignal) => {
    if (final && !running.current) return final;
    const wasRunning = running.current;
    const found = await get<UsageReport>(`v1/jobs/${job}/usage`, { attempt }, signal);
    final = wasRunning ? null : found;
    return found;
  };
  const report = useLive(read, [job, attempt], { concerns: (event) => event.job === job, every: EVERY });
  const found = report.data.value;
  if (!found?.usage) return null;
  const { series } = found;
  const drawn = series && series.at_seconds.length > 1 ? CHARTS.filter((one) => one.values(series).some((value) => value !== null)) : [];
  return (
    <section class="panel usage" aria-label="what it used">
      <h2>
        Used <span class="faint">in attempt {found.attempt}, measured for {duration(found.usage.seconds)}</span>
      </h2>
      <dl class="card">
        {card(found.usage).map(([word, text]) => (
          <div key={word}>
            <dt class="faint">{word}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      {found.advice.length > 0 && (
        <ul class="advice" aria-label="advice">
          {found.advice.map((text) => (
            <li key={text}>
              <Sentence text={text} />
            </li>
          ))}
        </ul>
      )}
      {series && drawn.length > 0 && (
        <Suspense fallback={null}>
          <div class="charts">
            {drawn.map(({ values, ...one }) => (
              <Chart key={one.label} at={series.at_seconds} values={values(series)} {...one} />
            ))}
          </div>
        </Suspense>
      )}
    </section>
  );
}
