import type { Signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { now } from "../../state/clock";
import { count, duration } from "../../words";
import { USES } from "./colours";
import { busyTime, cardTimes, gpuTime, suspendedTime, type Row } from "./rows";
import { edges, type Sight } from "./sight";

const SHOWN = 50;

interface Props {
  rows: Row[];
  sight: Signal<Sight>;
  isWhole: boolean;
}

/** What the picture shows, for those who cannot see it. Made when it is wanted: the picture must stay quick. */
export function Words(props: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="panel timeline-words" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The same in words</summary>
      {isOpen && <Busiest {...props} />}
    </details>
  );
}

/** The rows that were used most. */
function Busiest({ rows, sight, isWhole }: Props) {
  const [first, last] = edges(sight.value, now.value);
  const until = Math.min(last, now.value);
  const span = Math.max(1, until - first);
  const busiest = rows
    .map((row) => ({
      row,
      busy: busyTime(row, first, until),
      gpu: gpuTime(row, first, until),
      suspended: suspendedTime(row, first, until),
      bars: row.bars.filter((bar) => bar.end > first && bar.begin < until),
    }))
    .sort((a, b) => b.busy - a.busy)
    .slice(0, SHOWN);
  const hasSuspended = busiest.some(({ suspended }) => suspended > 0);
  return (
    <>
      {!isWhole && <p class="faint">Not all of it is loaded: the true use is higher.</p>}
      <div class="timeline-scroll" tabIndex={0} role="region" aria-label="use of the busiest rows">
        <table>
          <caption class="faint">
            Use in the last {duration(span / 1000)} before {new Date(until).toLocaleString()}
            {rows.length > SHOWN && `: the busiest ${SHOWN} of ${rows.length.toLocaleString("en")}`}
          </caption>
          <thead>
            <tr>
              <th scope="col">row</th>
              <th scope="col">in use</th>
              <th scope="col">otherwise</th>
              <th scope="col">time</th>
              <th scope="col">GPU time</th>
              {hasSuspended && <th scope="col">suspended</th>}
              <th scope="col">ran</th>
            </tr>
          </thead>
          <tbody>
            {busiest.map(({ row, busy, gpu, suspended, bars }) => (
              <tr key={row.key}>
                <th scope="row">{row.label}</th>
                <td>{Math.round((100 * busy) / span)} %</td>
                <td>{otherwise(row, first, until)}</td>
                <td>{duration(busy / 1000)}</td>
                <td>{row.isCard ? "" : duration(gpu / 1000)}</td>
                {hasSuspended && <td>{suspended > 0 && duration(suspended / 1000)}</td>}
                <td>{count(new Set(bars.map((bar) => bar.item.job)).size, "job")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** `idle 60 %, used by others 40 %`: what a card was while no job of this queue had it. */
function otherwise(row: Row, first: number, until: number): string {
  if (!row.isCard || until <= first) return "";
  const times = cardTimes(row, first, until);
  return (["idle", "others", "lost", "unknown"] as const)
    .map((use) => [USES[use].word, Math.round((100 * times[use]) / (until - first))] as const)
    .filter(([, percent]) => percent > 0)
    .map(([word, percent]) => `${word} ${percent} %`)
    .join(", ");
}
