import { act, change, retry, type Act } from "../../acts";
import { go } from "../../router";
import { isReadOnly } from "../../state/session";
import { say, sayError } from "../../state/toasts";
import { count } from "../../words";
import { moveTo, type Target } from "./moving";
import type { JobPages } from "./pages";
import { chooseNone, chosen } from "./selection";

/** What can be done to all the jobs that were chosen. */
export function Bulk({ pages, isInTurn }: { pages: JobPages; isInTurn: boolean }) {
  const ids = [...chosen.value];
  if (!ids.length || isReadOnly.value) return null;
  const then = (isDone: boolean) => {
    if (!isDone) return;
    chooseNone();
    void pages.refresh();
  };
  const run = async (action: Act) => then(await act(action, ids));
  const prioritise = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const priority = Number(data.get("priority"));
    let changed = 0;
    for (const id of ids) if (await change(id, { priority })) changed++;
    if (changed) say(`${count(changed, "job")} now with priority ${priority}.`);
    void pages.refresh();
  };
  return (
    <div class="bulk panel" role="toolbar" aria-label="chosen jobs">
      <span>{count(ids.length, "job")} chosen</span>
      <button onClick={() => void retry(ids).then(then, sayError)}>Retry</button>
      <button onClick={() => void run("hold")}>Hold</button>
      <button onClick={() => void run("release")}>Release</button>
      <form onSubmit={(event) => void prioritise(event)}>
        <label>
          Priority <input name="priority" type="number" min={-999999} max={999999} defaultValue="0" required />
        </label>
        <button>Set</button>
      </form>
      {isInTurn && ids.length === 1 && <Moves pages={pages} id={ids[0]!} />}
      {ids.length > 1 && <button onClick={() => go("compare", { jobs: ids.join() })}>Compare</button>}
      <button class="danger" onClick={() => void run("kill")}>
        Kill
      </button>
      <button class="quiet" onClick={chooseNone}>
        none
      </button>
    </div>
  );
}

const MOVES: [Target, string][] = [
  ["top", "To the top"],
  ["up", "Up"],
  ["down", "Down"],
  ["bottom", "To the bottom"],
];

/** The places that a job can go to without being dragged. */
function Moves({ pages, id }: { pages: JobPages; id: number }) {
  const run = async (target: Target) => {
    const place = pages.placeOf(id);
    const job = place === null ? undefined : pages.row(place);
    if (job) await moveTo(pages, job, target);
  };
  return (
    <>
      {MOVES.map(([target, label]) => (
        <button key={target} onClick={() => void run(target)}>
          {label}
        </button>
      ))}
    </>
  );
}
