// Whose environment new jobs get. A browser has none that fits: no PATH, no virtual environment. So they are like
// another job, the last one of the same project unless the user chooses one, or like the daemon where there is none.
import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Job, JobPage } from "../../api/types";
import { inWords } from "../../state/toasts";
import type { Like } from "./sending";

const LOOKED_AT = 100; // jobs
const OFFERED = 12;

export interface Likeness {
  like: Like;
  job: Job | null; // that one
  offers: Job[];
  choose: (like: Like) => void;
  error: string;
  isKnown: boolean; // the daemon has been asked
}

export function useLikeness(project: string, from: number | null): Likeness {
  const [recent, setRecent] = useState<Job[] | null>(null);
  const [ofProject, setOfProject] = useState<Job | null>(null);
  const [chosen, setChosen] = useState<Like | null>(from);
  const [error, setError] = useState("");
  useEffect(() => {
    const closing = new AbortController();
    const say = (problem: unknown) => closing.signal.aborted || setError(inWords(problem));
    const named = from === null ? Promise.resolve([]) : get<Job>(`v1/jobs/${from}`, {}, closing.signal).then((job) => [job]);
    Promise.all([named, get<JobPage>("v1/jobs", { limit: LOOKED_AT }, closing.signal)])
      .then(([first, page]) => setRecent([...first, ...page.jobs.filter((job) => job.id !== from)]))
      .catch(say);
    return () => closing.abort();
  }, [from]);
  useEffect(() => {
    setOfProject(null);
    if (!project.trim()) return;
    const closing = new AbortController();
    get<JobPage>("v1/jobs", { project: project.trim(), limit: 1 }, closing.signal)
      .then((page) => setOfProject(page.jobs[0] ?? null))
      .catch(() => undefined); // the choice among the recent ones is still there
    return () => closing.abort();
  }, [project]);

  const all = [...(ofProject ? [ofProject] : []), ...(recent ?? [])];
  const like = chosen ?? ofProject?.id ?? recent?.[0]?.id ?? "daemon";
  return {
    like,
    job: all.find((job) => job.id === like) ?? null,
    offers: distinct(all, like),
    choose: setChosen,
    error,
    isKnown: recent !== null,
  };
}

/** The newest of each project and folder; the one that is chosen anyway. */
function distinct(jobs: Job[], like: Like): Job[] {
  const seen = new Set<string>();
  const kept = jobs.filter((job) => {
    const key = JSON.stringify([job.project, job.workdir]);
    if (job.id !== like && seen.has(key)) return false;
    seen.add(key);
    return true;
  });
  return [...new Map(kept.map((job) => [job.id, job])).values()].slice(0, OFFERED);
}
