import type { Gpu } from "../../api/types";
import { Sparkline } from "../../parts/Sparkline";
import { isReadOnly } from "../../state/session";
import "../../style/cards.css";
import { cardName, load, memory } from "./cards";
import { Drain } from "./Drain";
import type { Past } from "./GpuTile";
import { Parts } from "./Parts";
import { Suspended } from "./Suspended";

const HOT = 85; // °C
const USUAL = ["free", "held"]; // what the parts say better

interface Props {
  gpus: Gpu[];
  past: (key: string) => Past | undefined;
  refresh: () => void;
}

/** Many cards, a dense row for each. */
export function CardRows({ gpus, past, refresh }: Props) {
  return (
    <section class="panel cards" aria-label="GPUs">
      <h2>
        GPUs <span class="faint">{summary(gpus)}</span>
      </h2>
      <table>
        <thead>
          <tr>
            <th scope="col">GPU</th>
            <th scope="col">load</th>
            <th scope="col">memory</th>
            <th scope="col" class="card-number">
              °C
            </th>
            <th scope="col" class="card-number">
              W
            </th>
            <th scope="col">held by</th>
            {!isReadOnly.value && (
              <th scope="col">
                <span class="unseen">in use or not</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu) => (
            <CardRow key={gpu.key} gpu={gpu} past={past(gpu.key)} refresh={refresh} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function CardRow({ gpu, past, refresh }: { gpu: Gpu; past: Past | undefined; refresh: () => void }) {
  const isHot = (gpu.temperature_celsius ?? 0) >= HOT;
  return (
    <tr class="card-row">
      <th scope="row" title={`${cardName(gpu)} ${gpu.name}: ${gpu.state}`}>
        <span class={`card-light gpu-${gpu.state}`} />
        {gpu.number ?? gpu.index ?? gpu.key}
        <span class="unseen">, {gpu.state}</span>
      </th>
      <td class="card-load">
        <Meter value={gpu.load_percent} most={100} text={load(gpu)} />
        {past && <Sparkline values={past.load_percent} most={100} label="load of the last ten minutes" />}
      </td>
      <td class="card-memory">
        <Meter value={gpu.memory_used_bytes} most={gpu.memory_total_bytes} text={memory(gpu)} />
      </td>
      <td class={isHot ? "card-number card-heat is-hot" : "card-number card-heat"}>{whole(gpu.temperature_celsius)}</td>
      <td class="card-number card-power">{whole(gpu.power_watts)}</td>
      <td class="card-parts">
        <div>
          {!USUAL.includes(gpu.state) && <span class={`badge gpu-${gpu.state}`}>{gpu.state}</span>}
          {gpu.holders.length || gpu.processes.some((one) => one.is_foreign) ? (
            <Parts gpu={gpu} />
          ) : (
            <span class="faint card-why" title={gpu.remedy ? `${gpu.why}; ${gpu.remedy}` : gpu.why}>
              {gpu.why || (gpu.slots ? gpu.state : "not in the pool")}
            </span>
          )}
          <Suspended gpu={gpu} />
        </div>
      </td>
      {!isReadOnly.value && <td class="card-act">{gpu.slots > 0 && <Drain gpu={gpu} refresh={refresh} isQuiet />}</td>}
    </tr>
  );
}

/** A bar with its value written on it. */
function Meter({ value, most, text }: { value: number | null; most: number | null; text: string }) {
  const share = value !== null && most ? Math.min(1, value / most) : 0;
  return (
    <span class="meter">
      <span class="meter-fill" style={{ width: `${(100 * share).toFixed(1)}%` }} />
      <span class="meter-text">{text}</span>
    </span>
  );
}

function whole(value: number | null): string {
  return value === null ? "?" : String(Math.round(value));
}

/** `16 × NVIDIA H200 · 12 held, 3 free, 1 drained`. */
function summary(gpus: Gpu[]): string {
  const names = tally(gpus.map((gpu) => gpu.name || "unknown"));
  const states = tally(gpus.map((gpu) => gpu.state));
  return `${names.map(([name, number]) => `${number} × ${name}`).join(", ")} · ${states.map(([state, number]) => `${number} ${state}`).join(", ")}`;
}

function tally(words: string[]): [string, number][] {
  const found = new Map<string, number>();
  for (const word of words) found.set(word, (found.get(word) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}
