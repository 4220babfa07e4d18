// What can be done to jobs, and what is said about it.
import { ask, get, post } from "./api/client";
import type { JobPage } from "./api/types";
import { confirm } from "./parts/Confirm";
import { say, sayError } from "./state/toasts";
import { count } from "./words";

export type Act = "kill" | "retry" | "hold" | "release";

interface Changed {
  changed: number[];
  unchanged: { id: number; why: string }[];
}

const DONE: Record<Act, string> = { kill: "killed", retry: "queued again", hold: "held", release: "released" };
const MOST_AT_ONCE = 10_000;

/** Try several jobs again. Those that have succeeded are left out where there are others, and never run unasked. */
export async function retry(ids: number[]): Promise<boolean> {
  const { jobs } = await get<JobPage>("v1/jobs", { ids: ids.join(), state: "succeeded", limit: 1000 });
  const succeeded = new Set(jobs.map((job) => job.id));
  const others = ids.filter((id) => !succeeded.has(id));
  if (!jobs.length) return act("retry", ids);
  const has = `${jobs.length} of them ${jobs.length === 1 ? "has" : "have"} succeeded`;
  if (!others.length) return (await confirm(`Run ${count(ids.length, "job")} again?`, `${has}.`, "Run again")) && act("retry", ids);
  const does = others.length === 1 ? "Retry the other" : `Retry the other ${others.length}`;
  return (await confirm(`Retry ${count(ids.length, "job")}?`, `${has}: only the rest is tried again.`, does)) && act("retry", others);
}

/** Do it to these jobs, after asking where it ends something. Returns whether anything may have changed. */
export async function act(action: Act, ids: number[]): Promise<boolean> {
  if (!ids.length) return false;
  if (action === "kill") {
    const jobs = ids.length === 1 ? `job ${ids[0]}` : count(ids.length, "job");
    const text = "Running jobs get TERM, some seconds to save their work, then KILL. Waiting jobs are cancelled.";
    if (!(await confirm(`Kill ${jobs}?`, text, `Kill ${jobs}`))) return false;
  }
  try {
    const all: Changed = { changed: [], unchanged: [] };
    for (let begin = 0; begin < ids.length; begin += MOST_AT_ONCE) {
      const some = await post<Changed>("v1/jobs/act", { action, ids: ids.slice(begin, begin + MOST_AT_ONCE) });
      all.changed.push(...some.changed);
      all.unchanged.push(...some.unchanged);
    }
    sayChanged(DONE[action], all);
    return true;
  } catch (error) {
    sayError(error);
    return false;
  }
}

/** Change what a job that waits asks for, or where it stands; raise ApiError where that is refused. */
export async function patch(id: number, body: Record<string, unknown>): Promise<void> {
  await ask(`v1/jobs/${id}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** The same; a refusal is said, and false comes back. */
export async function change(id: number, body: Record<string, unknown>): Promise<boolean> {
  try {
    await patch(id, body);
    return true;
  } catch (error) {
    sayError(error);
    return false;
  }
}

function sayChanged(done: string, { changed, unchanged }: Changed): void {
  if (changed.length) say(`${changed.length === 1 ? `Job ${changed[0]}` : count(changed.length, "job")} ${done}.`);
  const first = unchanged[0];
  if (first) {
    const others = unchanged.length > 1 ? ` (and ${count(unchanged.length - 1, "other")})` : "";
    say(`${first.why}${others}`, true);
  }
}
