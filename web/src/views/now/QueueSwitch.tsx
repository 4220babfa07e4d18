import { post } from "../../api/client";
import type { Status } from "../../api/types";
import { isReadOnly } from "../../state/session";
import { say, sayError } from "../../state/toasts";

/** The whole queue stopped or going on. */
export function QueueSwitch({ status, refresh }: { status: Status | null; refresh: () => void }) {
  if (!status) return null;
  const change = async () => {
    try {
      await post(status.paused ? "v1/unpause" : "v1/pause", {});
      say(status.paused ? "The queue goes on." : "The queue is paused: what runs goes on, nothing new starts.");
      refresh();
    } catch (error) {
      sayError(error);
    }
  };
  const projects = status.paused_projects;
  return (
    <div class="queue-switch">
      <h1>Now</h1>
      {status.paused && <span class="badge state-held">the queue is paused</span>}
      {projects.length > 0 && <span class="badge state-held">paused: {projects.join(", ")}</span>}
      {!isReadOnly.value && <button onClick={() => void change()}>{status.paused ? "Go on" : "Pause the queue"}</button>}
    </div>
  );
}
