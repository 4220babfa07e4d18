import { get } from "../api/client";
import type { Event } from "../api/stream";
import type { Gpus, JobPage, Status } from "../api/types";
import { useLive } from "../state/useLive";
import "../style/now.css";
import { First } from "./now/First";
import { GpuTile, type History } from "./now/GpuTile";
import { JobLines } from "./now/JobLines";
import { Nodes } from "./now/Nodes";
import { QueueSwitch } from "./now/QueueSwitch";

const WAITING = "queued,submitted,held";
const BAD = "failed,timed_out,lost";
const SHOWN = 8;

const isAboutJobs = (event: Event) => event.kind.startsWith("job") || event.kind.startsWith("queue");

/** What the machine does at this moment. */
export function Now() {
  const status = useLive((signal) => get<Status>("v1/status", {}, signal), [], { concerns: isAboutJobs });
  const gpus = useLive((signal) => get<Gpus>("v1/gpus", {}, signal), [], { every: 2000, atMost: 1000 });
  const history = useLive((signal) => get<History>("v1/gpus/history", { seconds: 600 }, signal), [], {
    concerns: () => false,
    every: 5000,
  });
  const list = (state: string, order: string, every = 0) =>
    useLive((signal) => get<JobPage>("v1/jobs", { state, order, limit: SHOWN }, signal), [], { concerns: isAboutJobs, every });
  const running = list("running", "newest", 5000); // their progress changes without an event
  const queued = list("queued", "turn");
  const submitted = list("submitted", "newest"); // they wait elsewhere
  const held = list("held", "newest"); // they have no turn
  const parts = [queued, submitted, held].map((one) => one.data.value);
  const waiting = parts.every((part) => part !== null) ? { jobs: parts.flatMap((part) => part!.jobs) } : null;
  const failed = list(BAD, "ended");

  const counts = status.data.value?.counts;
  // Users whose jobs run elsewhere need no GPU here.
  const needsGpus = status.data.value?.default_backend === "local";
  const tiles = (gpus.data.value?.gpus.length || needsGpus) && (
    <Tiles gpus={gpus.data.value} history={history.data.value} refresh={gpus.refresh} />
  );
  if (counts && Object.values(counts).every((number) => !number)) {
    return (
      <>
        <First />
        {tiles}
        <Nodes />
      </>
    );
  }
  const many = (...states: string[]) => states.reduce((sum, state) => sum + (counts?.[state as keyof typeof counts] ?? 0), 0);
  return (
    <>
      <QueueSwitch status={status.data.value} refresh={status.refresh} />
      {gpus.error.value && <p class="error">{gpus.error.value}</p>}
      {tiles}
      <Nodes />
      <div class="now-lists">
        <JobLines
          title="Running"
          total={many("running")}
          page={running.data.value}
          filter="running"
          empty="Nothing runs."
        />
        <JobLines
          title="Waiting"
          total={many("queued", "submitted", "held")}
          page={waiting}
          most={SHOWN}
          filter={WAITING}
          empty="Nothing waits."
          showsWhy
        />
        <JobLines title="Failed" total={many("failed", "timed_out", "lost")} page={failed.data.value} filter={BAD} empty="Nothing has failed." />
      </div>
    </>
  );
}

interface TilesProps {
  gpus: Gpus | null;
  history: History | null;
  refresh: () => void;
}

function Tiles({ gpus, history, refresh }: TilesProps) {
  if (!gpus) return null;
  if (!gpus.gpus.length) {
    return (
      <p class="panel">
        dibs knows no GPU here. Name some with <code>dibs gpus add 0,1</code>; jobs without one (<code>-n 0</code>) run anyway.
      </p>
    );
  }
  return (
    <div class="tiles">
      {gpus.gpus.map((gpu) => (
        <GpuTile key={gpu.key} gpu={gpu} past={history?.gpus.find((one) => one.key === gpu.key)} refresh={refresh} />
      ))}
    </div>
  );
}
