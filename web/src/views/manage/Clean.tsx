import { useEffect, useState } from "preact/hooks";
import { get, post } from "../../api/client";
import type { State } from "../../api/types";
import { confirm } from "../../parts/Confirm";
import { inWords, say } from "../../state/toasts";
import { useLive } from "../../state/useLive";
import { count } from "../../words";
import { readDuration, Unreadable } from "../submit/units";

const STATES: [State, string][] = [
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["timed_out", "timed out"],
  ["lost", "lost"],
  ["cancelled", "cancelled"],
];
const PAUSE = 300; // milliseconds after the last letter

interface Form {
  older: string;
  states: ReadonlySet<State>;
  project: string;
}

interface Wanted {
  older_seconds: number;
  state: State[];
  project?: string;
}

/** Forget jobs that are over, with their output. What that would be is said before. */
export function Clean() {
  const [form, setForm] = useState<Form>({ older: "30d", states: new Set(STATES.map(([state]) => state)), project: "" });
  const [number, setNumber] = useState<number | null>(null);
  const [trouble, setTrouble] = useState("");
  const [kept, setKept] = useState<string[]>([]);
  const [turn, setTurn] = useState(0); // counts up when jobs were removed
  const projects = useLive((signal) => get<{ projects: { name: string }[] }>("v1/projects", {}, signal), [], { atMost: 10_000 });
  const { wanted, problems } = read(form);
  const asked = wanted && JSON.stringify(wanted);
  useEffect(() => {
    setNumber(null);
    setTrouble("");
    if (!asked) return;
    const closing = new AbortController();
    const timer = window.setTimeout(() => {
      const { state, ...rest } = JSON.parse(asked) as Wanted;
      get<{ jobs: number }>("v1/clean", { ...rest, state: state.join() }, closing.signal)
        .then(({ jobs }) => setNumber(jobs))
        .catch((error: unknown) => closing.signal.aborted || setTrouble(inWords(error)));
    }, PAUSE);
    return () => {
      window.clearTimeout(timer);
      closing.abort();
    };
  }, [asked, turn]);
  const change = (some: Partial<Form>) => setForm((before) => ({ ...before, ...some }));
  const clean = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!wanted || !number) return;
    const jobs = count(number, "job");
    if (!(await confirm(`Remove ${jobs}?`, `${jobs} and their output are gone for good.`, `Remove ${jobs}`))) return;
    try {
      const done = await post<{ removed: number; kept: string[] }>("v1/clean", wanted);
      say(`${count(done.removed, "job")} removed.`);
      setKept(done.kept);
      setTurn(turn + 1);
    } catch (error) {
      setTrouble(inWords(error));
    }
  };
  const toggle = (state: State, isIn: boolean) => {
    const states = new Set(form.states);
    if (isIn) states.add(state);
    else states.delete(state);
    change({ states });
  };
  return (
    <section class="panel" aria-label="clean">
      <h2>Clean</h2>
      <form class="manage-clean" noValidate onSubmit={(event) => void clean(event)}>
        <div class="field">
          <label for="clean-older">Ended longer ago than</label>
          <input
            id="clean-older"
            autocomplete="off"
            value={form.older}
            aria-invalid={Boolean(problems.older)}
            aria-describedby="clean-older-note"
            onInput={(event) => change({ older: event.currentTarget.value })}
          />
          <p id="clean-older-note" class={problems.older ? "error field-note" : "faint field-note"}>
            {problems.older ?? "30d or 12h; empty: however lately."}
          </p>
        </div>
        <div class="field">
          <label for="clean-project">Project</label>
          <select id="clean-project" value={form.project} onChange={(event) => change({ project: event.currentTarget.value })}>
            <option value="">every project</option>
            {projects.data.value?.projects
              .filter((one) => one.name)
              .map((one) => (
                <option key={one.name} value={one.name}>
                  {one.name}
                </option>
              ))}
          </select>
        </div>
        <fieldset class="field-wide" aria-describedby="clean-states-note">
          <legend>Which have</legend>
          <div class="submit-ticks">
            {STATES.map(([state, word]) => (
              <label key={state} class="tick">
                <input type="checkbox" checked={form.states.has(state)} onChange={(event) => toggle(state, event.currentTarget.checked)} /> {word}
              </label>
            ))}
          </div>
          <p id="clean-states-note" class="error field-note">
            {problems.states ?? ""}
          </p>
        </fieldset>
        <div class="actions field-wide">
          <output aria-live="polite" class={trouble ? "error" : undefined}>
            {trouble || (number === null ? "" : number ? `This removes ${count(number, "job")} and their output.` : "There is nothing to remove.")}
          </output>
          <button class="danger" disabled={!wanted || !number}>
            Remove…
          </button>
        </div>
      </form>
      {kept.length > 0 && (
        <div class="faint">
          What jobs wrote in copies of the code (--snapshot) is kept until you delete it:
          <ul>
            {kept.map((folder) => (
              <li key={folder}>
                <code>{folder}</code>
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

function read({ older, states, project }: Form): { wanted: Wanted | null; problems: { older?: string; states?: string } } {
  const problems: { older?: string; states?: string } = {};
  let seconds = 0;
  try {
    if (older.trim()) seconds = readDuration(older);
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    problems.older = error.message;
  }
  if (!states.size) problems.states = "Choose at least one.";
  const wanted = { older_seconds: seconds, state: [...states], ...(project && { project }) };
  return { wanted: Object.keys(problems).length ? null : wanted, problems };
}
