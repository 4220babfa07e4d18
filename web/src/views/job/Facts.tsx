import type { ComponentChildren } from "preact";
import type { Attempt, WholeJob } from "../../api/types";
import { suspendedIn, sum } from "../../elapsed";
import { systemName } from "../../places";
import { to } from "../../router";
import { now } from "../../state/clock";
import { ago, clock, duration } from "../../words";
import { isOver } from "./story";
import { wishes } from "./wishes";

/** Where it runs and what it wishes that is not the usual. */
export function Facts({ job }: { job: WholeJob }) {
  const last = job.attempts_list.at(-1);
  const suspended = last && suspensions(last);
  const pid = !isOver(job.state) && last?.pid;
  return (
    <section class="panel" aria-label="facts">
      <dl class="facts">
        {job.cause && <Fact word="cause">{job.cause}</Fact>}
        {job.sweep && (
          <Fact word="sweep">
            <a href={to(`sweeps/${job.sweep.id}`)}>{job.sweep.id}</a>, trial {job.sweep.trial}
          </Fact>
        )}
        <Fact word="user">{job.user}</Fact>
        <Fact word="folder">
          <code>{job.workdir}</code>
        </Fact>
        {job.on && <Fact word="on">{on(job)}</Fact>}
        {last?.backend_job && <Fact word={last.backend}>{last.backend_job}</Fact>}
        {job.node && <Fact word="node">{job.node}</Fact>}
        {(job.gpus.length > 0 || job.node_gpus) && <Fact word="GPU">{job.node_gpus.replaceAll(",", ", ") || job.gpus.join(", ")}</Fact>}
        {pid ? <Fact word="pid">{pid}</Fact> : null}
        <Moment word="queued" at={job.queued_at} />
        <Moment word="started" at={job.started_at} />
        <Moment word="ended" at={job.ended_at} />
        {suspended && <Fact word="suspended">{suspended}</Fact>}
        {wishes(job).map(([word, text]) => (
          <Fact key={word} word={word}>
            {text}
          </Fact>
        ))}
        {job.lessons?.map((lesson) => (
          <Fact key={lesson.gpu} word="learned">
            {lesson.sentence}
          </Fact>
        ))}
        {job.stdout && (
          <Fact word="stdout">
            <code>{job.stdout}</code>
          </Fact>
        )}
        {job.stderr && job.stderr !== job.stdout && (
          <Fact word="stderr">
            <code>{job.stderr}</code>
          </Fact>
        )}
      </dl>
    </section>
  );
}

/** `Slurm, partition gpu, account lab`. */
function on(job: WholeJob): string {
  return [systemName(job.on), ...Object.entries(job.on_options).map(([name, value]) => `${name} ${value}`)].join(", ");
}

/** How often it stood still, and for how long: `3 times, 2h 7m in all`. */
function suspensions(attempt: Attempt): string {
  const found = suspendedIn(attempt);
  if (!found.length) return "";
  return `${found.length === 1 ? "once" : `${found.length} times`}, ${duration(sum(found, now.value) / 1000)} in all`;
}

function Fact({ word, children }: { word: string; children: ComponentChildren }) {
  return (
    <div>
      <dt class="faint">{word}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Moment({ word, at }: { word: string; at: string | null }) {
  if (!at) return null;
  return (
    <Fact word={word}>
      <time dateTime={at}>{clock(at)}</time> <span class="faint">{ago(at, now.value)}</span>
    </Fact>
  );
}
