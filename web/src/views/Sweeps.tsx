import { get } from "../api/client";
import { go, to } from "../router";
import { now } from "../state/clock";
import { isReadOnly } from "../state/session";
import { useLive } from "../state/useLive";
import "../style/sweep.css";
import { ago, clock } from "../words";
import { number } from "./sweep/axes";
import { Badge } from "./sweep/Badge";
import { Progress } from "./sweep/Progress";
import { template } from "./sweep/progress";
import { resultsOf, type Sweep, type SweepList } from "./sweep/shapes";

/** The searches over parameters, the newest first. */
export default function Sweeps() {
  const found = useLive((signal) => get<SweepList>("v1/sweeps", {}, signal), [], {
    concerns: (event) => event.kind.startsWith("sweep."),
    atMost: 1000,
  });
  const sweeps = found.data.value?.sweeps;
  return (
    <div class="sweeps">
      <div class="sweeps-top">
        <h1>Sweeps</h1>
        {!isReadOnly.value && (
          <a class="button" href={to("sweeps/new")}>
            New sweep
          </a>
        )}
      </div>
      {found.error.value && <p class="error">{found.error.value}</p>}
      {sweeps?.length === 0 && <First />}
      {sweeps !== undefined && sweeps.length > 0 && (
        <div class="panel sweeps-scroll" tabIndex={0} role="region" aria-label="all sweeps">
          <table role="table">
            <thead role="rowgroup">
              <tr role="row">
                <th scope="col" role="columnheader">#</th>
                <th scope="col" role="columnheader">name</th>
                <th scope="col" role="columnheader">state</th>
                <th scope="col" role="columnheader">trials</th>
                <th scope="col" role="columnheader">best</th>
                <th scope="col" role="columnheader">began</th>
              </tr>
            </thead>
            <tbody role="rowgroup">
              {sweeps.map((sweep) => (
                <Line key={sweep.id} sweep={sweep} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found.data.value?.cursor != null && <p class="faint">Only the newest are shown; `dibs sweep ls` lists them all.</p>}
    </div>
  );
}

function Line({ sweep }: { sweep: Sweep }) {
  const path = `sweeps/${sweep.id}`;
  return (
    <tr role="row" onClick={(event) => (event.target as Element).closest("a") ?? go(path)}>
      <td role="cell" class="sweeps-id">
        <a href={to(path)}>{sweep.id}</a>
      </td>
      <td role="cell" class="sweeps-name" title={template(sweep)}>
        {sweep.name && <b>{sweep.name}</b>} <code>{template(sweep)}</code>
      </td>
      <td role="cell" class="sweeps-state" title={sweep.why}>
        <Badge state={sweep.state} />
      </td>
      <td role="cell" class="sweeps-progress">
        <Progress sweep={sweep} />
      </td>
      <td role="cell" class="sweeps-best">{bestWords(sweep)}</td>
      <td role="cell" class="faint sweeps-when" title={clock(sweep.queued_at)}>
        {ago(sweep.queued_at, now.value)}
      </td>
    </tr>
  );
}

function bestWords({ metrics, best }: Sweep): string {
  const values = best[0] && resultsOf(best[0]);
  const names = metrics.map((one) => one.name).join(", ");
  if (!metrics.length || !values) return names && `no ${names} yet`;
  if (best.length > 1) return `${best.length} on the front of ${names}`;
  return metrics.map((one, place) => `${one.name} ${number(values[place] ?? NaN)}`).join(", ");
}

function First() {
  return (
    <p class="panel">
      There is no sweep yet. One begins with <code>dibs sweep "python train.py --lr {"{lr}"}" -p lr 1e-4..1e-1:log --samples 40 --metric val_loss</code>
      : it tries values until it has found good ones, and this page shows them.
    </p>
  );
}
