import { useState } from "preact/hooks";
import { act, type Act } from "../../acts";
import type { WholeJob } from "../../api/types";
import { TellMe } from "../../parts/TellMe";
import { isReadOnly } from "../../state/session";
import { editAndResubmit } from "./again";
import { Edit } from "./Edit";
import { isOver, isWaiting } from "./story";

/** What can be done to this job at this moment. */
export function Acts({ job, refresh }: { job: WholeJob; refresh: () => void }) {
  const [isEditing, setEditing] = useState(false);
  if (isReadOnly.value) return null;
  const run = async (action: Act) => {
    if (await act(action, [job.id])) refresh();
  };
  return (
    <div class="job-acts">
      {isWaiting(job.state) && job.state !== "submitted" && <button onClick={() => setEditing(true)}>Edit</button>}
      {job.state === "queued" && <button onClick={() => void run("hold")}>Hold</button>}
      {job.state === "held" && <button onClick={() => void run("release")}>Release</button>}
      {canSuspend(job) && (
        <button title="It stands still, and its GPU is free (S)" onClick={() => void run("suspend")}>
          Suspend
        </button>
      )}
      {willResume(job) && (
        <button title="It goes on only when it is resumed (S)" onClick={() => void run("suspend")}>
          Keep suspended
        </button>
      )}
      {canResume(job) && (
        <button title="It goes on when its GPU has room (R)" onClick={() => void run("resume")}>
          Resume
        </button>
      )}
      {isOver(job.state) && job.state !== "succeeded" && <button onClick={() => void run("retry")}>Retry</button>}
      <button onClick={() => editAndResubmit(job)}>Edit and resubmit</button>
      {!isOver(job.state) && <TellMe ids={[job.id]} />}
      {!isOver(job.state) && (
        <button class="danger" onClick={() => void run("kill")}>
          Kill
        </button>
      )}
      {isEditing && <Edit job={job} onClose={() => setEditing(false)} refresh={refresh} />}
    </div>
  );
}

/** Whether it runs here, and nothing is moved at this moment. */
function canSuspend(job: WholeJob): boolean {
  return job.state === "running" && !job.on && !job.is_ending && !isMoved(job);
}

/** Whether it goes on by itself, as one that was suspended for another job. */
function willResume(job: WholeJob): boolean {
  return isMoved(job) && job.suspension!.resumes && job.suspension!.phase !== "resuming";
}

function canResume(job: WholeJob): boolean {
  return isMoved(job) && !job.suspension!.resumes;
}

/** Whether it is suspended, or about to be. */
function isMoved({ suspension, is_ending: isEnding }: WholeJob): boolean {
  return suspension !== null && suspension.phase !== "over" && !isEnding;
}
