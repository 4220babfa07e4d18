import { get } from "../../api/client";
import type { JobPage, WholeJob } from "../../api/types";
import { to } from "../../router";
import { useLive } from "../../state/useLive";

const SHOWN = 200; // tasks of an array
const HOW: Record<string, string> = { ok: "succeeds", any: "ends", fail: "fails" };

/** The jobs it waits for, and the other tasks of its array. */
export function Related({ job }: { job: WholeJob }) {
  if (!job.after.length && !job.array) return null;
  return (
    <section class="panel" aria-label="related jobs">
      {job.after.length > 0 && (
        <p>
          Starts after{" "}
          {job.after.map((one, place) => (
            <span key={one.job}>
              {place > 0 && ", "}
              <a href={to(`job/${one.job}`)}>job {one.job}</a> {HOW[one.kind] ?? one.kind}
            </span>
          ))}
        </p>
      )}
      {job.array && <Siblings array={job.array.id} most={job.array.most} own={job.id} />}
    </section>
  );
}

function Siblings({ array, most, own }: { array: number; most: number | null; own: number }) {
  const page = useLive((signal) => get<JobPage>("v1/jobs", { array, order: "oldest", limit: SHOWN }, signal), [array], {
    concerns: (event) => event.kind.startsWith("job"),
    atMost: 2000,
  });
  const tasks = page.data.value;
  if (!tasks) return null;
  return (
    <>
      <p>
        Array {array}
        {most ? `, ${most} at once` : ""}
      </p>
      <div class="siblings">
        {tasks.jobs.map((one) => (
          <a
            key={one.id}
            href={to(`job/${one.id}`)}
            class={`badge state-${one.state}`}
            title={`job ${one.id}: ${one.state}`}
            aria-label={`task ${one.array?.task}: ${one.state}`}
            aria-current={one.id === own ? "true" : undefined}
          >
            {one.array?.task}
          </a>
        ))}
        {tasks.cursor && <span class="faint">…</span>}
      </div>
    </>
  );
}
