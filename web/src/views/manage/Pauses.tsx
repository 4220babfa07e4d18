import { get, post } from "../../api/client";
import type { components } from "../../api/schema";
import type { Status } from "../../api/types";
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
  const isPaused = status.data.value?.paused ?? false;
  const projects = found.data.value?.projects.filter((project) => project.name) ?? [];
  return (
    <section class="panel" aria-label="the queue">
      <h2>The queue</h2>
      <ul class="manage-list">
        <li>
          <b>Everything</b>
          {isPaused && <span class="badge state-held">paused</span>}
          <button class="manage-act" disabled={!status.data.value} onClick={() => void change("", isPaused)}>
            {isPaused ? "Go on" : "Pause the queue"}
          </button>
        </li>
        {projects.map((project) => (
          <li key={project.name}>
            <a href={to("jobs", { project: project.name })}>{project.name}</a>
            {project.paused && <span class="badge state-held">paused</span>}
            <span class="faint">{`${count(project.counts.queued ?? 0, "job waits", "jobs wait")}, ${project.counts.running ?? 0} run`}</span>
            <button class="manage-act" onClick={() => void change(project.name, project.paused)}>
              {project.paused ? "Go on" : "Pause"}
              <span class="unseen"> {project.name}</span>
            </button>
          </li>
        ))}
      </ul>
      {found.data.value && !projects.length && <p class="faint">There is no project: jobs get one with dibs add -P NAME.</p>}
    </section>
  );
}
