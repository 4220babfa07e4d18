// What the palette offers: views, keys of this view, acts on the chosen jobs, and jobs by number or name.
import { act, actOnAll, retry, type Act } from "../acts";
import { ApiError, get } from "../api/client";
import type { Job, JobPage } from "../api/types";
import { keyGroups, type Key } from "../keys";
import { go, route } from "../router";
import { isReadOnly } from "../state/session";
import { nextTheme } from "../state/theme";
import { sayError } from "../state/toasts";
import { chooseNone, chosen } from "../views/jobs/selection";
import { count, jobNumber } from "../words";

export interface Choice {
  key: string;
  label: string;
  hint: string; // its key, or the state of a job
  isDanger?: boolean;
  run: () => void;
}

const SHOWN = 8; // jobs
const ACTS: [Act, string][] = [
  ["hold", "Hold"],
  ["release", "Release"],
  ["suspend", "Suspend"],
  ["resume", "Resume"],
  ["retry", "Retry"],
  ["kill", "Kill"],
];

/** All but the jobs. What is harmless stands first: Enter in an empty field must not change a job. */
export function actions(): Choice[] {
  const { everywhere, here } = keyGroups();
  const onJobs = acts();
  const keys = here.filter((one) => !one.isAct || !onJobs.length);
  const theme = { key: "theme", label: "Change the theme", hint: "", run: nextTheme };
  return [...everywhere.map(keyed), ...onJobs, ...keys.map(keyed), ...actsOnAll(), theme];
}

function keyed({ keys, does, run }: Key): Choice {
  return { key: keys, label: does[0]!.toUpperCase() + does.slice(1), hint: keys, run };
}

/** The job with this number first, then the newest with this text somewhere. */
export async function findJobs(text: string, signal: AbortSignal): Promise<Choice[]> {
  const [named, others] = await Promise.all([
    /^\d+(_\d+)?$/.test(text) ? numbered(text, signal) : [],
    get<JobPage>("v1/jobs", { text, limit: SHOWN }, signal),
  ]);
  const jobs = [...named, ...others.jobs.filter((job) => named.every((one) => one.id !== job.id))];
  return jobs.slice(0, SHOWN).map((job) => ({
    key: `job ${job.id}`,
    label: `${jobNumber(job)} ${job.name || job.command}`,
    hint: job.is_ending ? "ending" : job.state,
    run: () => go(`job/${job.id}`),
  }));
}

async function numbered(text: string, signal: AbortSignal): Promise<Job[]> {
  try {
    const { ids } = await get<{ ids: number[] }>("v1/find", { ref: text }, signal);
    return ids.length ? (await get<JobPage>("v1/jobs", { ids: ids.join(), limit: SHOWN }, signal)).jobs : [];
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  }
}

/** On the jobs that are chosen, or on the one that is shown. */
function acts(): Choice[] {
  if (isReadOnly.value) return [];
  const { path } = route.value;
  const isOne = path[0] === "job" && /^\d+$/.test(path[1] ?? "");
  const ids = chosen.value.size ? [...chosen.value] : isOne ? [Number(path[1])] : [];
  if (!ids.length) return [];
  const what = chosen.value.size ? `the chosen ${ids.length === 1 ? "job" : count(ids.length, "job")}` : `job ${ids[0]}`;
  const run = async (action: Act) => {
    if (await (action === "retry" ? retry(ids) : act(action, ids))) chooseNone();
  };
  return ACTS.map(([action, label]) => ({
    key: action,
    label: `${label} ${what}`,
    hint: "",
    isDanger: action === "kill",
    run: () => void run(action).catch(sayError),
  }));
}

function actsOnAll(): Choice[] {
  if (isReadOnly.value) return [];
  return [
    { key: "suspend all", label: "Suspend all jobs that run", hint: "", run: () => void actOnAll("suspend") },
    { key: "resume all", label: "Resume all jobs that are suspended", hint: "", run: () => void actOnAll("resume") },
  ];
}
