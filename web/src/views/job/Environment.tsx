import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { WholeJob } from "../../api/types";
import { useLive } from "../../state/useLive";
import { count } from "../../words";
import type { EnvironmentBody } from "./shapes";

const SHOWN = 1000; // variables; some environments have very many

/** The variables that a job runs with: those that were set for it first, then what was captured when it was added. */
export function Environment({ job }: { job: WholeJob }) {
  const [text, setText] = useState("");
  const found = useLive((signal) => get<EnvironmentBody>(`v1/jobs/${job.id}/environment`, {}, signal), [job.id], {
    concerns: (event) => event.job === job.id && event.kind === "job.edited",
  });
  const captured = found.data.value?.environment;
  if (!captured) return <p class="faint">{found.error.value || "…"}</p>;
  const wanted = text.trim().toLowerCase();
  const fits = ([name, value]: [string, string]) => !wanted || `${name}=${value}`.toLowerCase().includes(wanted);
  const own = Object.entries(job.env).filter(fits);
  const others = Object.entries(captured).filter(([name]) => !(name in job.env)).filter(fits);
  others.sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <section class="panel environment" aria-label="environment">
      <input
        type="search"
        placeholder="Filter"
        aria-label="filter the variables"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {own.length > 0 && (
        <>
          <h2>Set for this job</h2>
          <Variables pairs={own} before={captured} />
        </>
      )}
      <h2>
        Captured when it was added <span class="faint">{count(others.length, "variable")}</span>
      </h2>
      <Variables pairs={others.slice(0, SHOWN)} />
      {others.length > SHOWN && <p class="faint">and {count(others.length - SHOWN, "other")}: filter for them</p>}
    </section>
  );
}

function Variables({ pairs, before }: { pairs: [string, string][]; before?: Record<string, string> }) {
  return (
    <dl class="variables mono">
      {pairs.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {before?.[name] !== undefined && before[name] !== value && <del>{before[name]}</del>} {value}
          </dd>
        </div>
      ))}
    </dl>
  );
}
