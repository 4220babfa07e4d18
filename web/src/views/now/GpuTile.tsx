import type { Gpu, Job } from "../../api/types";
import { Sparkline } from "../../parts/Sparkline";
import { to } from "../../router";
import { now } from "../../state/clock";
import { isReadOnly } from "../../state/session";
import { duration, jobNumber, size } from "../../words";
import { Drain } from "./Drain";

export interface Past {
  key: string;
  load_percent: (number | null)[];
  memory_used_bytes: (number | null)[];
}

export interface History {
  gpus: Past[];
}

interface Props {
  gpu: Gpu;
  past: Past | undefined;
  running: Job[];
  refresh: () => void;
}

/** One card: what it is, what it does, who has it. */
export function GpuTile({ gpu, past, running, refresh }: Props) {
  const strangers = gpu.processes.filter((one) => one.is_foreign);
  const name = gpu.index === null ? gpu.key : `GPU ${gpu.number ?? gpu.index}`;
  return (
    <article class={`panel tile tile-${gpu.state}`} aria-label={name}>
      <header>
        <h2>{name}</h2>
        <span class="faint tile-name">{gpu.name}</span>
        <span class={`badge gpu-${gpu.state}`}>{gpu.state}</span>
      </header>
      <div class="tile-lines">
        <Line name="load" value={percent(gpu.load_percent)} values={past?.load_percent} most={100} />
        <Line
          name="memory"
          value={memory(gpu)}
          values={past?.memory_used_bytes}
          most={gpu.memory_total_bytes ?? 0}
        />
      </div>
      <p class="faint tile-facts">{facts(gpu)}</p>
      {gpu.why && (gpu.state !== "busy" || !strangers.length) && (
        <p class="tile-why">
          {gpu.why}
          {gpu.remedy && <span class="faint">; {gpu.remedy}</span>}
        </p>
      )}
      <ul class="holders">
        {gpu.holders.map((holder) => (
          <li key={`${holder.job}-${holder.pid}`}>
            <Holding name={holder.job} job={running.find((job) => isHeldBy(job, holder.job, gpu.number))} /> of {holder.user}
            {holder.since_at && <span class="faint"> for {duration((now.value - Date.parse(holder.since_at)) / 1000)}</span>}
          </li>
        ))}
        {strangers.map((one) => (
          <li key={one.pid}>
            {one.name || "a process"} of {one.user ?? "an unknown user"}
            <span class="faint"> without a lease, pid {one.pid}, {size(one.memory_bytes)}</span>
          </li>
        ))}
      </ul>
      {!isReadOnly.value && gpu.slots > 0 && <Drain gpu={gpu} refresh={refresh} />}
    </article>
  );
}

/** A holder tells its name; where that is a job of this queue, it is a way there. */
function Holding({ name, job }: { name: string; job: Job | undefined }) {
  return job ? <a href={to(`job/${job.id}`)}>job {name}</a> : <>job {name}</>;
}

/** A lease names its job `17`, `17 (train)` or `17_4 (train)`. */
function isHeldBy(job: Job, name: string, card: string | null): boolean {
  return name.split(" ")[0] === jobNumber(job) && job.gpus.map(String).includes(String(card));
}

interface LineProps {
  name: string;
  value: string;
  values: (number | null)[] | undefined;
  most: number;
}

function Line({ name, value, values, most }: LineProps) {
  return (
    <div>
      <span class="faint">{name}</span> <b>{value}</b>
      {values && values.length > 1 && <Sparkline values={values} most={most} label={`${name} of the last ten minutes`} />}
    </div>
  );
}

function percent(value: number | null): string {
  return value === null ? "?" : `${Math.round(value)} %`;
}

function memory(gpu: Gpu): string {
  if (gpu.memory_total_bytes === null) return "?";
  return `${size(gpu.memory_used_bytes)} of ${size(gpu.memory_total_bytes)}`;
}

function facts(gpu: Gpu): string {
  const facts = [];
  if (gpu.temperature_celsius !== null) facts.push(`${Math.round(gpu.temperature_celsius)} °C`);
  if (gpu.power_watts !== null) facts.push(`${Math.round(gpu.power_watts)} W`);
  if (gpu.slots > 1) facts.push(`${gpu.slots} slots`);
  if (!gpu.slots) facts.push("not in the pool");
  return facts.join(" · ");
}
