import { post } from "../../api/client";
import { say, sayError } from "../../state/toasts";
import { count } from "../../words";
import type { Act, Acted, Sweep } from "./shapes";

export type Action = Exclude<Act["action"], "edit">;

const DONE: Record<Action, string> = {
  stop: "is stopped",
  hold: "is held: what runs goes on, nothing new begins",
  release: "goes on",
  resume: "goes on",
  "retry-failed": "tries again",
};

/** Do it to this sweep, and say what came of it; raise ApiError where that is refused. */
export async function changeSweep(sweep: Sweep, action: Action, more: Pick<Act, "samples"> = {}): Promise<void> {
  const { changed, trials } = await post<Acted>(`v1/sweeps/${sweep.id}/act`, { action, ...more });
  const again = action === "retry-failed" ? ` ${count(trials, "trial")}` : "";
  say(changed ? `Sweep ${sweep.id} ${DONE[action]}${again}.` : `Nothing has changed about sweep ${sweep.id}.`);
}

/** The same; a refusal is said, and false comes back. */
export async function actOnSweep(sweep: Sweep, action: Action): Promise<boolean> {
  try {
    await changeSweep(sweep, action);
    return true;
  } catch (error) {
    sayError(error);
    return false;
  }
}
