import type { Attempt, WholeJob } from "../../api/types";
import { attemptSeconds, suspendedIn } from "../../elapsed";
import { place } from "../../places";
import { to } from "../../router";
import { now } from "../../state/clock";
import { clock, duration, size } from "../../words";
import { ending, isSubmitted } from "./story";

const SHOWN = 50; // the last ones; a job that may be tried a thousand times is tried a thousand times

/** Every time that it ran. */
export function Attempts({ job, shown }: { job: WholeJob; shown: number }) {
  const all = job.attempts_list;
  if (!all.length) return null;
  const some = all.slice(-SHOWN);
  return (
    <section class="panel" aria-label="attempts">
      <h2>Attempts</h2>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="table of attempts">
        <table>
          <thead>
            <tr>
              <th scope="col">#</th>
              <th scope="col">GPU</th>
              <th scope="col">started</th>
              <th scope="col">took</th>
              <th scope="col">end</th>
              <th scope="col">pid</th>
              <th scope="col">CPU time</th>
              <th scope="col">memory</th>
            </tr>
          </thead>
          <tbody>
            {some.map((one) => (
              <Row key={one.number} job={job.id} one={one} isShown={one.number === shown} />
            ))}
          </tbody>
        </table>
      </div>
      {all.length > some.length && <p class="faint">and {all.length - some.length} earlier ones</p>}
    </section>
  );
}

function Row({ job, one, isShown }: { job: number; one: Attempt; isShown: boolean }) {
  return (
    <tr class={isShown ? "attempt is-shown" : "attempt"}>
      <td>
        <a
          href={to(`job/${job}`, { attempt: one.number })}
          aria-label={`attempt ${one.number}`}
          aria-current={isShown ? "true" : undefined}
        >
          {one.number}
        </a>
      </td>
      <td>{place(one) || "–"}</td>
      <td>{isSubmitted(one) ? "–" : clock(one.started_at)}</td>
      <td>{isSubmitted(one) ? "–" : duration(attemptSeconds(one, now.value))}</td>
      <td class="attempt-end">{how(one)}</td>
      <td>{one.pid ?? "–"}</td>
      <td>{one.cpu_seconds === null ? "–" : duration(one.cpu_seconds)}</td>
      <td>{one.max_rss_bytes === null ? "–" : size(one.max_rss_bytes)}</td>
    </tr>
  );
}

/** `succeeded`, `exit 1`, `SIGKILL: it was killed`. */
function how(one: Attempt): string {
  if (one.ended_at === null) return isSubmitted(one) ? "waits" : suspendedIn(one).some(({ end }) => end === Infinity) ? "suspended" : "runs";
  if (!one.cause) return "succeeded";
  const word = ending(one) || one.cause;
  return one.message ? `${word}: ${one.message}` : word;
}
