// What can be done to jobs, and what is said about it.
import { ask, get, post } from "./api/client";
import type { components } from "./api/schema";
import type { JobPage, State } from "./api/types";
import { confirm } from "./parts/Confirm";
import { tellOfRefusals } from "./state/suspending";
import { say, sayError } from "./state/toasts";
import { count } from "./words";

export type Act = "kill" | "retry" | "hold" | "release" | "suspend" | "resume" | "priority";

/** Jobs by number, or all that match. */
export type Chosen = number[] | components["schemas"]["ActFilter"];

interface Changed {
  changed: number[];
  unchanged: { id: number; why: string }[];
  left_out: Partial<Record<State, number>>;
}

const DONE: Record<Act, string> = {
  kill: "killed",
  retry: "queued again",
  hold: "held",
  release: "released",
  suspend: "suspended",
  resume: "resumed",
  priority: "moved to another priority",
};
/** Of what is only begun. */
const BEGUN: Partial<Record<Act, string>> = { suspend: "will be suspended in a moment", resume: "will go on as soon as there is room" };
const ASKED: Record<Act, [title: string, does: string]> = {
  kill: ["Kill", "Kill"],
  retry: ["Run", "Run"],
  hold: ["Hold", "Hold"],
  release: ["Release", "Release"],
  suspend: ["Suspend", "Suspend"],
  resume: ["Resume", "Resume"],
  priority: ["Set the priority of", "Set it for"],
};
const AT_ONCE = 500; // numbers in one address
const ENDS = "Running jobs get TERM, some seconds to save their work, then KILL. Waiting jobs are cancelled.";

/** Try several jobs again. Those that have succeeded are left out where there are others, and never run unasked. */
export async function retry(ids: number[]): Promise<boolean> {
  const succeeded = new Set<number>();
  for (let begin = 0; begin < ids.length; begin += AT_ONCE) {
    const some = ids.slice(begin, begin + AT_ONCE);
    const { jobs } = await get<JobPage>("v1/jobs", { ids: ranges(some), state: "succeeded", limit: AT_ONCE });
    for (const job of jobs) succeeded.add(job.id);
  }
  const others = ids.filter((id) => !succeeded.has(id));
  if (!succeeded.size) return act("retry", ids);
  const has = `${succeeded.size} of them ${succeeded.size === 1 ? "has" : "have"} succeeded`;
  if (!others.length) return (await confirm(`Run ${count(ids.length, "job")} again?`, `${has}.`, "Run again")) && act("retry", ids);
  const does = others.length === 1 ? "Retry the other" : `Retry the other ${others.length}`;
  return (await confirm(`Retry ${count(ids.length, "job")}?`, `${has}: only the rest is tried again.`, does)) && act("retry", others);
}

/** Suspend all that runs, or let all that is suspended go on; of one project or of the whole queue. */
export function actOnAll(action: "suspend" | "resume", project = ""): Promise<boolean> {
  return act(action, { state: [action === "suspend" ? "running" : "suspended"], ...(project && { project }) });
}

/** Do it to these jobs, after asking where it ends something or is done to all that match. Returns whether it was done. */
export async function act(action: Act, jobs: Chosen, priority?: number): Promise<boolean> {
  if (Array.isArray(jobs) && !jobs.length) return false;
  const which = Array.isArray(jobs) ? { ids: jobs } : { filter: jobs };
  const body = { action, ...which, ...(priority !== undefined && { priority }) };
  try {
    if (!(await agrees(action, body))) return false;
    const found = await post<Changed>("v1/jobs/act", body);
    sayChanged(BEGUN[action] ?? DONE[action], found);
    if (action === "suspend") tellOfRefusals(found.changed);
    return true;
  } catch (error) {
    sayError(error);
    return false;
  }
}

/** Whether the user wants it: of all that match, the daemon says first how many these are. */
async function agrees(action: Act, body: { ids?: number[]; filter?: unknown }): Promise<boolean> {
  const [title, does] = ASKED[action];
  if (body.ids) {
    const jobs = body.ids.length === 1 ? `job ${body.ids[0]}` : count(body.ids.length, "job");
    return action !== "kill" || confirm(`${title} ${jobs}?`, ENDS, `${does} ${jobs}`);
  }
  const { changed, left_out: left } = await post<Changed>("v1/jobs/act", { ...body, dry_run: true });
  const others = statesIn(left);
  if (!changed.length) {
    say(`None of these jobs can be ${DONE[action]}${others && `: ${others}`}.`, true);
    return false;
  }
  const jobs = count(changed.length, "job");
  const again = action === "retry" ? " again" : "";
  const rest = others ? `Of those that match, others are left alone: ${others}.` : "These are all that match.";
  return confirm(`${title} ${jobs}${again}?`, `${rest}${action === "kill" ? ` ${ENDS}` : ""}`, `${does} ${jobs}${again}`);
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

function sayChanged(done: string, { changed, unchanged, left_out: left }: Changed): void {
  if (changed.length) say(`${changed.length === 1 ? `Job ${changed[0]}` : count(changed.length, "job")} ${done}.`);
  const first = unchanged[0];
  if (first) {
    const others = unchanged.length > 1 ? ` (and ${count(unchanged.length - 1, "other")})` : "";
    say(`Job ${first.id} was left alone: ${first.why}${others}`, true);
  }
  const others = statesIn(left);
  if (others) say(`Left alone: ${others}.`);
}

/** `3 succeeded, 1 failed` */
function statesIn(counts: Changed["left_out"]): string {
  return Object.entries(counts)
    .filter(([, number]) => number)
    .map(([state, number]) => `${number.toLocaleString("en")} ${state.replace("_", " ")}`)
    .join(", ");
}

/** `3-5,8` */
function ranges(ids: number[]): string {
  const parts: [number, number][] = [];
  for (const id of [...ids].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last?.[1] === id - 1) last[1] = id;
    else parts.push([id, id]);
  }
  return parts.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join();
}
