import { get } from "../api/client";
import type { Event } from "../api/stream";
import type { Gpus, JobPage, Status } from "../api/types";
import { useTrouble } from "../state/trouble";
import { useLive } from "../state/useLive";
import "../style/now.css";
import { CardRows } from "./now/CardRows";
import { First } from "./now/First";
import { GpuTile, type History } from "./now/GpuTile";
import { JobLines } from "./now/JobLines";
import { Nodes } from "./now/Nodes";
import { QueueSwitch } from "./now/QueueSwitch";
import { useWaiting } from "./now/waiting";

const WAITING = "queued,submitted,held";
const BAD = "failed,timed_out,lost";
const MOST_TILES = 8; // cards; more of them have a row each
const LISTED = 8; // jobs of a kind
const LISTED_DENSELY = 40;

const isAboutJobs = (event: Event) => event.kind.startsWith("job");
const endsJobs = (event: Event) => /^job\.(ended|queued)|^jobs\.removed/.test(event.kind);
const changesCards = (event: Event) => /^job\.(started|suspended|resumed|ended)|^gpu|^pool/.test(event.kind);
const pauses = (event: Event) => /^(queue|project)\./.test(event.kind);

/** What the machine does at this moment. */
export function Now() {
  const status = useLive((signal) => get<Status>("v1/status", {}, signal), [], { concerns: pauses });
  const gpus = useLive((signal) => get<Gpus>("v1/gpus", {}, signal), [], { concerns: changesCards, every: 2000, atMost: 1000 });
  const isNarrow = window.matchMedia("(max-width: 640px)").matches;
  const isDense = (gpus.data.value?.gpus.length ?? 0) > MOST_TILES;
  const most = isDense && !isNarrow ? LISTED_DENSELY : LISTED;
  const list = (state: string, order: string, limit: number, concerns: (event: Event) => boolean, every = 0) =>
    useLive((signal) => get<JobPage>("v1/jobs", { state, order, limit }, signal), [limit], { concerns, every, atMost: 1000 });
  const running = list("running", "newest", most, isAboutJobs, 5000); // their progress changes without an event
  useTrouble(running.data.value);
  const failed = list(BAD, "ended", LISTED, endsJobs);
  const waiting = useWaiting(most);
  const history = useLive((signal) => get<History>("v1/gpus/history", { seconds: 600 }, signal), [], {
    concerns: () => false,
    every: 5000,
  });

  const counts = waiting.data.value?.counts ?? status.data.value?.counts;
  // Users whose jobs run elsewhere need no GPU here.
  const needsGpus = status.data.value?.default_backend === "local";
  const cards = (gpus.data.value?.gpus.length || needsGpus) && (
    <Cards gpus={gpus.data.value} isDense={isDense} history={history.data.value} refresh={gpus.refresh} />
  );
  if (counts && Object.values(counts).every((number) => !number)) {
    return (
      <>
        <First />
        {cards}
        <Nodes />
      </>
    );
  }
  const many = (...states: string[]) => states.reduce((sum, state) => sum + (counts?.[state as keyof typeof counts] ?? 0), 0);
  const lists = {
    running: (
      <JobLines title="Running" total={many("running")} page={running.data.value} filter="running" empty="Nothing runs." isDense={isDense} />
    ),
    suspended: many("suspended") > 0 && (
      <JobLines
        title="Suspended"
        total={many("suspended")}
        page={waiting.data.value && { jobs: waiting.data.value.suspended }}
        filter="suspended"
        empty=""
        isDense={isDense}
        why={waiting.data.value?.whySuspended}
      />
    ),
    waiting: (
      <JobLines
        title="Waiting"
        total={many("queued", "submitted", "held")}
        page={waiting.data.value}
        filter={WAITING}
        empty="Nothing waits."
        isDense={isDense}
        why={waiting.data.value?.why}
      />
    ),
    failed: (
      <JobLines
        title="Failed"
        total={many("failed", "timed_out", "lost")}
        page={failed.data.value}
        filter={BAD}
        empty="Nothing has failed."
        isDense={isDense}
      />
    ),
  };
  const head = (
    <>
      <QueueSwitch status={status.data.value} refresh={status.refresh} />
      {gpus.error.value && <p class="error">{gpus.error.value}</p>}
    </>
  );
  if (isDense) {
    return (
      <div class="now-dense">
        {head}
        <div class="now-cards">
          {cards}
          <Nodes />
          {lists.failed}
        </div>
        <div class="now-jobs">
          {lists.running}
          {lists.suspended}
          {lists.waiting}
        </div>
      </div>
    );
  }
  return (
    <>
      {head}
      {cards}
      <Nodes />
      <div class="now-lists">
        {lists.running}
        {lists.suspended}
        {lists.waiting}
        {lists.failed}
      </div>
    </>
  );
}

interface CardsProps {
  gpus: Gpus | null;
  isDense: boolean;
  history: History | null;
  refresh: () => void;
}

function Cards({ gpus, isDense, history, refresh }: CardsProps) {
  if (!gpus) return null;
  if (!gpus.gpus.length) {
    return (
      <p class="panel">
        dibs knows no GPU here. Name some with <code>dibs gpus add 0,1</code>; jobs without one (<code>-n 0</code>) run anyway.
      </p>
    );
  }
  const past = (key: string) => history?.gpus.find((one) => one.key === key);
  if (isDense) return <CardRows gpus={gpus.gpus} past={past} refresh={refresh} />;
  return (
    <div class="tiles">
      {gpus.gpus.map((gpu) => (
        <GpuTile key={gpu.key} gpu={gpu} past={past(gpu.key)} refresh={refresh} />
      ))}
    </div>
  );
}
