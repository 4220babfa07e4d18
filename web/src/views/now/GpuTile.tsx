import type { Gpu } from "../../api/types";
import { Sparkline } from "../../parts/Sparkline";
import { to } from "../../router";
import { now } from "../../state/clock";
import { isReadOnly } from "../../state/session";
import { duration, size } from "../../words";
import { cardName, load, memory } from "./cards";
import { Drain } from "./Drain";
import { Parts } from "./Parts";
import { Suspended } from "./Suspended";

const MOST_LINES = 3; // holders; more would stretch the tile, and with it its row

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
  refresh: () => void;
}

/** One card: what it is, what it does, who has it. */
export function GpuTile({ gpu, past, refresh }: Props) {
  const strangers = gpu.processes.filter((one) => one.is_foreign);
  const name = cardName(gpu);
  return (
    <article class={`panel tile tile-${gpu.state}`} aria-label={name}>
      <header>
        <h2>{name}</h2>
        <span class="faint tile-name">{gpu.name}</span>
        <span class={`badge gpu-${gpu.state}`}>{gpu.state}</span>
      </header>
      <div class="tile-lines">
        <Line name="load" value={load(gpu)} values={past?.load_percent} most={100} />
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
      {gpu.holders.length + strangers.length > MOST_LINES ? <Parts gpu={gpu} /> : <Holders gpu={gpu} strangers={strangers} />}
      <Suspended gpu={gpu} />
      {!isReadOnly.value && gpu.slots > 0 && <Drain gpu={gpu} refresh={refresh} />}
    </article>
  );
}

/** Those that have a part of the card, a line each. */
function Holders({ gpu, strangers }: { gpu: Gpu; strangers: Gpu["processes"] }) {
  return (
    <ul class="holders">
      {gpu.holders.map((holder) => (
        <li key={`${holder.job_id ?? holder.job}-${holder.pid}`}>
          <HolderName holder={holder} /> of {holder.user}
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
  );
}

/** A job of this queue is a link to it, by its number: tasks of an array share a name. */
function HolderName({ holder }: { holder: Gpu["holders"][number] }) {
  if (holder.job_id === null) return <>job {holder.job}</>;
  return <a href={to(`job/${holder.job_id}`)}>job {holder.job}</a>;
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

function facts(gpu: Gpu): string {
  const facts = [];
  if (gpu.temperature_celsius !== null) facts.push(`${Math.round(gpu.temperature_celsius)} °C`);
  if (gpu.power_watts !== null) facts.push(`${Math.round(gpu.power_watts)} W`);
  if (gpu.slots > 1) facts.push(`${gpu.slots} slots`);
  if (!gpu.slots) facts.push("not in the pool");
  return facts.join(" · ");
}
