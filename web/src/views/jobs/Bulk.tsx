import { useState } from "preact/hooks";
import { act, retry, type Act, type Chosen } from "../../acts";
import { go } from "../../router";
import { isReadOnly } from "../../state/session";
import { sayError } from "../../state/toasts";
import { TellMe } from "../../parts/TellMe";
import { count } from "../../words";
import { filterOf, type Asked } from "./asked";
import { moveTo, type Target } from "./moving";
import type { JobPages } from "./pages";
import { allThatMatch, chooseNone, chosen } from "./selection";

interface Props {
  asked: Asked;
  pages: JobPages;
  isInTurn: boolean;
}

const MOST_PRIORITY = 999_999;

/** What can be done to all the jobs that were chosen. */
export function Bulk({ asked, pages, isInTurn }: Props) {
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState("");
  const all = allThatMatch.value;
  const ids = [...chosen.value];
  if (!all && !ids.length) return null;
  const jobs: Chosen = all ? filterOf(asked, all.until, all.without) : ids;
  const number = all ? all.jobs - all.without.size : ids.length;
  const run = async (does: () => Promise<boolean>, isLeft = false) => {
    setBusy(true);
    try {
      if ((await does()) && !isLeft) chooseNone();
      await pages.refresh();
    } catch (error) {
      sayError(error);
    }
    setBusy(false);
  };
  const button = (label: string, action: Act) => (
    <button disabled={isBusy} class={action === "kill" ? "danger" : undefined} onClick={() => void run(() => act(action, jobs))}>
      {label}
    </button>
  );
  const prioritise = (event: SubmitEvent) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("priority")).trim();
    const priority = Number(text);
    if (!/^-?\d{1,6}$/.test(text)) return setWrong(`It is a whole number from -${MOST_PRIORITY} to ${MOST_PRIORITY}.`);
    void run(() => act("priority", jobs, priority), true);
  };
  return (
    <div class="bulk panel" role="toolbar" aria-label="chosen jobs">
      <span>{all ? `All ${count(number, "job")} that match` : `${count(number, "job")} chosen`}</span>
      {!isReadOnly.value && isInTurn && ids.length === 1 && <Moves pages={pages} id={ids[0]!} />}
      <div class="bulk-acts">
        {!isReadOnly.value && (
          <>
            <button disabled={isBusy} onClick={() => void run(() => (all ? act("retry", jobs) : retry(ids)))}>
              Retry
            </button>
            {button("Hold", "hold")}
            {button("Release", "release")}
            {button("Suspend", "suspend")}
            {button("Resume", "resume")}
            <form noValidate onSubmit={prioritise}>
              <label>
                Priority{" "}
                <input
                  name="priority"
                  inputMode="numeric"
                  defaultValue="0"
                  aria-invalid={wrong !== ""}
                  aria-describedby="bulk-wrong"
                  onInput={() => setWrong("")}
                />
              </label>
              <button disabled={isBusy}>Set</button>
              <span id="bulk-wrong" class="error" role="alert">
                {wrong}
              </span>
            </form>
            {button("Kill", "kill")}
          </>
        )}
        {!all && ids.length > 1 && <button onClick={() => go("compare", { jobs: ids.join() })}>Compare</button>}
        {!all && <TellMe ids={ids} />}
        <button class="quiet" onClick={chooseNone}>
          none
        </button>
      </div>
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
    <span class="bulk-moves" role="group" aria-label="place in the queue">
      {MOVES.map(([target, label]) => (
        <button key={target} onClick={() => void run(target)}>
          {label}
        </button>
      ))}
    </span>
  );
}
