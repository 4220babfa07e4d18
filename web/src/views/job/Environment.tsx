import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { WholeJob } from "../../api/types";
import { useLive } from "../../state/useLive";
import { count } from "../../words";
import type { EnvironmentBody } from "./shapes";

type Variables = Record<string, string>;

const SECRET = /KEY|TOKEN|SECRET|PASSWORD/i; // in a name, as in routes/jobs.py
const SHOWN = 1000; // variables; some environments have very many

/** The variables that a job runs with, all of them or what is different from another job's. */
export function Environment({ job }: { job: WholeJob }) {
  const [other, setOther] = useState("");
  const ours = useEnvironment(job.id);
  const theirs = useEnvironment(Number(other) || null);
  if (!ours.found) return <p class="faint">{ours.error || "…"}</p>;
  return (
    <section class="panel environment" aria-label="environment">
      <label>
        Different from job{" "}
        <input type="number" min={1} placeholder="12" value={other} onInput={(event) => setOther(event.currentTarget.value)} />
      </label>
      {!other && <Whole {...ours.found} />}
      {other && theirs.error && <p class="error">{theirs.error}</p>}
      {other && theirs.found && <Difference now={all(ours.found)} before={all(theirs.found)} />}
    </section>
  );
}

interface Found {
  captured: Variables; // when the job was added
  own: Variables; // set for it alone
}

function all({ captured, own }: Found): Variables {
  return { ...captured, ...own };
}

/** The daemon hides the captured ones; those that were set for the job are needed when it is submitted again. */
function withoutSecrets(variables: Variables): Variables {
  return Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, SECRET.test(name) ? "***" : value]));
}

function useEnvironment(id: number | null): { found: Found | null; error: string } {
  const read = async (signal: AbortSignal): Promise<Found | null> => {
    if (id === null) return null;
    const [body, job] = await Promise.all([
      get<EnvironmentBody>(`v1/jobs/${id}/environment`, {}, signal),
      get<WholeJob>(`v1/jobs/${id}`, {}, signal),
    ]);
    return { captured: body.environment, own: withoutSecrets(job.env) };
  };
  const live = useLive(read, [id], { concerns: (event) => event.job === id && event.kind === "job.edited" });
  return { found: live.data.value, error: live.error.value };
}

/** What was set for the job first, then what was captured when it was added. */
function Whole({ captured, own: set }: Found) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const fits = ([name, value]: [string, string]) => !wanted || `${name}=${value}`.toLowerCase().includes(wanted);
  const own = Object.entries(set).filter(fits);
  const others = Object.entries(captured).filter(([name]) => !(name in set)).filter(fits);
  others.sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <>
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
          <List pairs={own} before={captured} />
        </>
      )}
      <h2>
        Captured when it was added <span class="faint">{count(others.length, "variable")}</span>
      </h2>
      <List pairs={others.slice(0, SHOWN)} />
      {others.length > SHOWN && <p class="faint">and {count(others.length - SHOWN, "other")}: filter for them</p>}
    </>
  );
}

function Difference({ now, before }: { now: Variables; before: Variables }) {
  const names = [...new Set([...Object.keys(now), ...Object.keys(before)])].filter((name) => now[name] !== before[name]).sort();
  if (!names.length) return <p class="faint">They are the same.</p>;
  return <List pairs={names.slice(0, SHOWN).map((name) => [name, now[name] ?? ""])} before={before} />;
}

function List({ pairs, before }: { pairs: [string, string][]; before?: Variables }) {
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
