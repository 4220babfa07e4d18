import { useState } from "preact/hooks";
import { confirm } from "../../parts/Confirm";
import { isReadOnly } from "../../state/session";
import { actOnSweep, type Action } from "./acting";
import { MoreSamples } from "./MoreSamples";
import type { Sweep } from "./shapes";

/** What can be done to this sweep at this moment. */
export function Acts({ sweep, refresh }: { sweep: Sweep; refresh: () => void }) {
  const [isAsking, setAsking] = useState(false);
  if (isReadOnly.value) return null;
  const run = async (action: Action) => {
    if (await actOnSweep(sweep, action)) refresh();
  };
  const stop = async () => {
    const text = "Its trials that run get TERM, some seconds to save their work, then KILL. What is known stays, and it can be resumed.";
    if (await confirm(`Stop sweep ${sweep.id}?`, text, `Stop sweep ${sweep.id}`)) await run("stop");
  };
  const isOver = sweep.state === "finished" || sweep.state === "stopped";
  return (
    <div class="sweep-acts">
      {sweep.counts.failed > 0 && <button onClick={() => void run("retry-failed")}>Retry failed</button>}
      {sweep.state === "running" && <button onClick={() => void run("hold")}>Hold</button>}
      {sweep.state === "held" && <button onClick={() => void run("release")}>Release</button>}
      {sweep.state === "stopped" && <button onClick={() => void run("resume")}>Resume</button>}
      {sweep.state === "finished" && sweep.spec.samples !== null && <button onClick={() => setAsking(true)}>More samples</button>}
      {!isOver && (
        <button class="danger" onClick={() => void stop()}>
          Stop
        </button>
      )}
      {isAsking && <MoreSamples sweep={sweep} onClose={() => setAsking(false)} refresh={refresh} />}
    </div>
  );
}
