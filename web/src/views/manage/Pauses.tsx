import { actOnAll } from "../../acts";
import { get, post } from "../../api/client";
import type { components } from "../../api/schema";
import type { State, Status } from "../../api/types";
import { to } from "../../router";
import { say, sayError } from "../../state/toasts";
import { useLive } from "../../state/useLive";
import { count } from "../../words";

type Project = components["schemas"]["ProjectObject"];

/** The queue and its projects: stopped, or going on. */
export function Pauses() {
  const isMeant = { concerns: (event: { kind: string }) => /^(job|queue|project)/.test(event.kind), atMost: 1000 };
  const status = useLive((signal) => get<Status>("v1/status", {}, signal), [], isMeant);
  const found = useLive((signal) => get<{ projects: Project[] }>("v1/projects", {}, signal), [], isMeant);
  const change = async (project: string, isPaused: boolean) => {
    try {
      await post(isPaused ? "v1/unpause" : "v1/pause", project ? { project } : {});
      const what = project ? `Project ${project}` : "The queue";
      say(isPaused ? `${what} goes on.` : `${what} is paused: what runs goes on, nothing new starts.`);
    } catch (error) {
      sayError(error);
    }
    status.refresh();
    found.refresh();
  };
  const suspending = (counts: Partial<Record<State, number>>, project = "") => (
    <Suspending counts={counts} project={project} refresh={found.refresh} />
  );
  const isPaused = status.data.value?.paused ?? false;
  const projects = found.data.value?.projects.filter((project) => project.name) ?? [];
  return (
    <section class="panel" aria-label="the queue">
      <h2>The queue</h2>
      <ul class="manage-list">
        <li>
          <b>Everything</b>
          {isPaused && <span class="badge state-held">paused</span>}
          <span class="manage-acts">
            {suspending(status.data.value?.counts ?? {})}
            <button disabled={!status.data.value} onClick={() => void change("", isPaused)}>
              {isPaused ? "Go on" : "Pause the queue"}
            </button>
          </span>
        </li>
        {projects.map((project) => (
          <li key={project.name}>
            <a href={to("jobs", { project: project.name })}>{project.name}</a>
            {project.paused && <span class="badge state-held">paused</span>}
            <span class="faint">{`${count(project.counts.queued ?? 0, "job waits", "jobs wait")}, ${project.counts.running ?? 0} run${project.counts.suspended ? `, ${project.counts.suspended} suspended` : ""}`}</span>
            <span class="manage-acts">
              {suspending(project.counts, project.name)}
              <button onClick={() => void change(project.name, project.paused)}>
                {project.paused ? "Go on" : "Pause"}
                <span class="unseen"> {project.name}</span>
              </button>
            </span>
          </li>
        ))}
      </ul>
      {found.data.value && !projects.length && <p class="faint">There is no project: jobs get one with dibs add -P NAME.</p>}
    </section>
  );
}

interface SuspendingProps {
  counts: Partial<Record<State, number>>;
  project: string; // empty: the whole queue
  refresh: () => void;
}

/** What runs stands still at once, or goes on: for a time in which the cards are wanted for something else. */
function Suspending({ counts, project, refresh }: SuspendingProps) {
  const run = async (action: "suspend" | "resume") => {
    if (await actOnAll(action, project)) refresh();
  };
  const { running = 0, suspended = 0 } = counts;
  return (
    <>
      {running > 0 && (
        <button onClick={() => void run("suspend")}>
          Suspend {count(running, "job")}
          <Of project={project} />
        </button>
      )}
      {suspended > 0 && (
        <button onClick={() => void run("resume")}>
          Resume {count(suspended, "job")}
          <Of project={project} />
        </button>
      )}
    </>
  );
}

/** For those who hear the button alone. */
function Of({ project }: { project: string }) {
  return project ? <span class="unseen"> of {project}</span> : null;
}
