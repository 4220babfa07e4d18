import { lazy, Suspense } from "preact/compat";
import { useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Job, JobPage } from "../api/types";
import { CurveControls } from "../curves/CurveControls";
import { differences } from "../curves/differing";
import { by, isLog, lineOf, smoothing, styleOf, type Line } from "../curves/lines";
import { metricsOfAll, type JobMetrics } from "../curves/shapes";
import { StateBadge } from "../parts/StateBadge";
import { go, route, to } from "../router";
import { useLive } from "../state/useLive";
import { useTitle } from "../state/useTitle";
import "../style/compare.css";
import { count, jobNumber } from "../words";
import { isOver } from "./job/story";

const CurveChart = lazy(() => import("../curves/CurveChart"));

export const MOST = 50; // jobs
const POINTS = 200; // of a series
const EVERY = 3000; // milliseconds, while one of them runs

interface Found {
  jobs: Job[];
  metrics: Map<number, JobMetrics>;
}

/** The curves of several jobs over each other. */
export default function Compare() {
  const asked = idsOf(route.value.query.get("jobs") ?? "");
  const ids = asked.slice(0, MOST);
  const final = useRef<{ ids: string; found: Found } | null>(null);
  const read = async (signal: AbortSignal): Promise<Found> => {
    if (final.current?.ids === ids.join()) return final.current.found; // all of them are over
    if (!ids.length) return { jobs: [], metrics: new Map() };
    const { jobs } = await get<JobPage>("v1/jobs", { ids: ids.join(), limit: MOST, order: "oldest" }, signal);
    const metrics = await metricsOfAll(ids, { points: POINTS }, signal);
    const found = { jobs, metrics: new Map(metrics.map((one) => [one.job, one])) };
    if (jobs.every((job) => isOver(job.state))) final.current = { ids: ids.join(), found };
    return found;
  };
  const live = useLive(read, [ids.join()], { concerns: (event) => ids.includes(event.job ?? 0), every: EVERY });
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const [pointed, setPointed] = useState<number | null>(null);
  useTitle(`compare ${count(ids.length, "job")}`);
  const found = live.data.value;
  const jobs = found?.jobs ?? [];
  const labels = useMemo(() => differences(jobs), [jobs]);
  if (!ids.length) {
    return (
      <p>
        Choose some jobs in <a href={to("jobs")}>Jobs</a>, and press Compare.
      </p>
    );
  }
  if (!found) return <p class={live.error.value ? "error" : "faint"}>{live.error.value || "…"}</p>;
  const toggle = (id: number) => {
    const next = new Set(hidden);
    if (!next.delete(id)) next.add(id);
    setHidden(next);
  };
  const names = [...new Set(jobs.flatMap((job) => found.metrics.get(job.id)?.series.map((one) => one.name) ?? []))];
  return (
    <div class="compare">
      {live.error.value && <p class="error">{live.error.value}</p>}
      {asked.length > MOST && <p class="faint">Only the first {MOST} of {asked.length} jobs are shown.</p>}
      <section class="panel" aria-label="legend">
        <div class="metrics-head">
          <h1>Compare {count(jobs.length, "job")}</h1>
          <CurveControls />
        </div>
        <ul class="compare-legend">
          {jobs.map((job, place) => (
            <li key={job.id} onMouseEnter={() => setPointed(job.id)} onMouseLeave={() => setPointed(null)}>
              <label class="compare-show">
                <input type="checkbox" aria-label={`show job ${job.id}`} checked={!hidden.has(job.id)} onChange={() => toggle(job.id)} />
              </label>
              <Swatch {...styleOf(place)} />
              <a href={to(`job/${job.id}`)}>{jobNumber(job)}</a>
              <StateBadge state={job.state} isEnding={job.is_ending} />
              <span class="compare-label">{labels[place] || job.name || job.command}</span>
            </li>
          ))}
        </ul>
      </section>
      {!names.length && <p class="panel">None of these jobs has reported a metric.</p>}
      <Suspense fallback={null}>
        <div class="compare-charts">
          {names.map((name) => (
            <Shared key={name} name={name} found={found} labels={labels} hidden={hidden} pointed={pointed} />
          ))}
        </div>
      </Suspense>
    </div>
  );
}

interface SharedProps {
  name: string;
  found: Found;
  labels: string[];
  hidden: ReadonlySet<number>;
  pointed: number | null;
}

/** One metric of all that have it. */
function Shared({ name, found, labels, hidden, pointed }: SharedProps) {
  const look = [by.value, smoothing.value, isLog.value].join();
  const lines = useMemo(() => {
    const made: Line[] = [];
    found.jobs.forEach((job, place) => {
      const series = hidden.has(job.id) ? undefined : found.metrics.get(job.id)?.series.find((one) => one.name === name);
      if (!series) return;
      const isPointed = pointed === job.id;
      const about = { key: String(job.id), label: `${job.id} ${labels[place] ?? ""}`.trim(), ...styleOf(place) };
      made.push(lineOf(series, { ...about, width: isPointed ? 3 : 1.5, opacity: pointed === null || isPointed ? 1 : 0.25 }));
    });
    return made;
  }, [found, name, labels, hidden, pointed, look]);
  return (
    <div class="panel">
      <CurveChart label={name} lines={lines} by={by.value} isLog={isLog.value} height={240} open={(key) => go(`job/${key}`)} />
    </div>
  );
}

function Swatch({ colour, dash }: Pick<Line, "colour" | "dash">) {
  return (
    <svg class="compare-swatch" viewBox="0 0 24 8" aria-hidden="true" style={{ color: `var(${colour})` }}>
      <path d="M0 4h24" stroke-dasharray={dash?.join(" ")} />
    </svg>
  );
}

/** `1,2,5-8` */
function idsOf(text: string): number[] {
  const found = new Set<number>();
  for (const part of text.split(",")) {
    const range = /^\s*(\d{1,15})(?:-(\d{1,15}))?\s*$/.exec(part);
    if (!range) continue;
    const last = Math.min(Number(range[2] ?? range[1]), Number(range[1]) + 1000);
    for (let id = Number(range[1]); id <= last; id++) found.add(id);
  }
  return [...found];
}
