import { get } from "../../api/client";
import { useLive } from "../../state/useLive";
import type { Importance } from "./shapes";

const AT_MOST = 15_000; // milliseconds; it is worked out anew each time

/** How much each parameter has to do with the first metric. */
export function ImportanceBars({ sweep }: { sweep: number }) {
  const found = useLive((signal) => get<Importance>(`v1/sweeps/${sweep}/importance`, {}, signal), [sweep], {
    concerns: (event) => event.kind.startsWith("sweep.") && event["sweep"] === sweep,
    atMost: AT_MOST,
  });
  const data = found.data.value;
  return (
    <section class="panel sweep-importance" aria-label="importance">
      <h2>Importance</h2>
      {found.error.value && <p class="faint">{found.error.value}</p>}
      {data?.why && <p class="faint">{data.why}</p>}
      <dl>
        {data?.importance.map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <span class="sweep-bar" style={{ width: `${100 * value}%` }} />
              <span>{Math.round(100 * value)} %</span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
