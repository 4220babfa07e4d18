import { useEffect, useRef } from "preact/hooks";
import { get } from "../api/client";
import type { WholeJob } from "../api/types";
import { act } from "../acts";
import { addKeys, type Key } from "../keys";
import { refine, route, to } from "../router";
import { useLive } from "../state/useLive";
import { useTitle } from "../state/useTitle";
import "../style/job.css";
import { Attempts } from "./job/Attempts";
import { CodeState } from "./job/CodeState";
import { Environment } from "./job/Environment";
import { useFailure } from "./job/failure";
import { Facts } from "./job/Facts";
import { Head } from "./job/Head";
import { Log } from "./job/Log";
import { Metrics } from "./job/Metrics";
import { Related } from "./job/Related";
import { isReadOnly } from "../state/session";
import { Steps } from "./job/Steps";
import { isOver, isWaiting } from "./job/story";
import { Usage } from "./job/Usage";

const TABS = [
  ["", "Overview"],
  ["log", "Log"],
  ["environment", "Environment"],
  ["code", "Code"],
] as const;
const EVERY = 5000; // milliseconds; why it waits, and how far it is, change without an event

/** Everything about one job. */
export default function Job() {
  const id = Number(route.value.path[1]);
  const waits = useRef(false);
  const found = useLive((signal) => get<WholeJob>(`v1/jobs/${id}`, {}, signal), [id], {
    concerns: (event) => event.job === id || waits.current,
    every: EVERY,
  });
  const job = found.data.value;
  waits.current = job !== null && isWaiting(job.state);
  const newest = job?.attempts_list.at(-1)?.number ?? 0;
  const attempt = Number(route.value.query.get("attempt")) || newest;
  const failure = useFailure(job, attempt);
  useTitle(job ? [job.id, job.name, `(${job.state})`].filter(Boolean).join(" ") : `job ${id}`);
  const last = failure?.stream ?? "stderr";

  useEffect(() => {
    const move = (step: number) => {
      const next = Math.min(newest, Math.max(1, attempt + step));
      if (newest > 1) refine({ attempt: String(next), line: undefined });
    };
    const suspending: Key[] = [
      { keys: "S", does: "suspend the job", isAct: true, run: () => void act("suspend", [id]) },
      { keys: "R", does: "resume the job", isAct: true, run: () => void act("resume", [id]) },
    ];
    return addKeys([
      { keys: "j", does: "next attempt", run: () => move(1) },
      { keys: "k", does: "previous attempt", run: () => move(-1) },
      ...(isReadOnly.value ? [] : suspending),
    ]);
  }, [attempt, newest]);

  if (!job) return <p class={found.error.value ? "error" : "faint"}>{found.error.value || "…"}</p>;
  const tab = route.value.path[2] ?? "";
  return (
    <div class={tab === "log" ? "job job-with-log" : "job"}>
      {found.error.value && <p class="error">{found.error.value}</p>}
      <Head job={job} failure={failure?.text ?? ""} refresh={found.refresh} />
      <nav class="tabs" aria-label="parts of the job">
        {TABS.filter(([name]) => name !== "environment" || !isReadOnly.value).map(([name, label]) => (
          <a
            key={name}
            href={to(`job/${id}${name && `/${name}`}`, { attempt: attempt === newest ? undefined : attempt })}
            aria-current={tab === name ? "page" : undefined}
          >
            {label}
          </a>
        ))}
      </nav>
      {tab === "log" && <Log job={job} attempt={attempt} last={last} isWhole />}
      {tab === "environment" && <Environment job={job} />}
      {tab === "code" && <CodeState job={job} />}
      {tab === "" && (
        <>
          <Steps job={job} />
          <Log job={job} attempt={attempt} last={last} isWhole={false} />
          {attempt > 0 && <Metrics job={id} attempt={attempt} isRunning={!isOver(job.state)} />}
          <div class="job-columns">
            <Facts job={job} />
            <div class="job-column">
              <Related job={job} />
              <Attempts job={job} shown={attempt} />
              {attempt > 0 && <Usage job={id} attempt={attempt} isRunning={!isOver(job.state)} />}
            </div>
          </div>
        </>
      )}
    </div>
  );
}
