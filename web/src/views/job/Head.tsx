import type { WholeJob } from "../../api/types";
import { Copy } from "../../parts/Copy";
import { StateBadge } from "../../parts/StateBadge";
import { to } from "../../router";
import { now } from "../../state/clock";
import { jobNumber } from "../../words";
import { Acts } from "./Acts";
import { Sentence } from "./Sentence";
import { story } from "./story";

interface Props {
  job: WholeJob;
  failure: string; // what it said last, if it has failed
  refresh: () => void;
}

/** Which job it is, how it stands with it, and what can be done about that. */
export function Head({ job, failure, refresh }: Props) {
  const sentence = story(job, now.value);
  const isBad = ["failed", "timed_out", "lost"].includes(job.state);
  return (
    <header class="job-head-panel">
      <div class="job-head-line">
        <h1>
          <span class="faint">{jobNumber(job)}</span> {job.name}
        </h1>
        <StateBadge state={job.state} isEnding={job.is_ending} />
        {job.project && (
          <a class="faint" href={to("jobs", { project: job.project })}>
            {job.project}
          </a>
        )}
        <Acts job={job} refresh={refresh} />
      </div>
      {sentence && (
        <p class={isBad ? "job-story error" : "job-story"}>
          <Sentence text={sentence} />
        </p>
      )}
      {isBad && failure && <p class="job-failure mono">{failure}</p>}
      <div class="job-command">
        <pre tabIndex={0} aria-label="command">
          {job.command}
        </pre>
        <Copy text={job.command} label="copy the command" />
      </div>
    </header>
  );
}
