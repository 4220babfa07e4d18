import { Copy } from "../../parts/Copy";
import { to } from "../../router";
import { now } from "../../state/clock";
import { ago, clock, duration } from "../../words";
import { Acts } from "./Acts";
import { number } from "./axes";
import { Badge } from "./Badge";
import { jobOf } from "./opening";
import { Progress } from "./Progress";
import { template } from "./progress";
import { resultsOf, type Sweep, type Trial, type TrialState } from "./shapes";

const STATES: TrialState[] = ["complete", "open", "pruned", "failed", "reused"];
const SHOWN = 3; // of a front

/** Which sweep it is, how far it has come, and the best that it has found. */
export function Head({ sweep, refresh }: { sweep: Sweep; refresh: () => void }) {
  const end = sweep.ended_at ? Date.parse(sweep.ended_at) : now.value;
  const [shown, hidden] = [sweep.best.slice(0, SHOWN), Math.max(0, sweep.best.length - SHOWN)];
  return (
    <header class="sweep-head">
      <div class="sweep-head-line">
        <h1>
          <span class="faint">sweep {sweep.id}</span> {sweep.name}
        </h1>
        <Badge state={sweep.state} />
        <Acts sweep={sweep} refresh={refresh} />
      </div>
      {sweep.why && <p class={sweep.state === "held" ? "sweep-why" : "sweep-why faint"}>{sweep.why}</p>}
      <div class="sweep-facts">
        <Progress sweep={sweep} />
        {STATES.filter((state) => sweep.counts[state] > 0).map((state) => (
          <span key={state}>
            {sweep.counts[state].toLocaleString("en")} <span class="faint">{state}</span>
          </span>
        ))}
        <span class="faint">{method(sweep)}</span>
        <span class="faint" title={clock(sweep.queued_at)}>
          began {ago(sweep.queued_at, now.value)}, {sweep.ended_at ? "took" : "for"} {duration((end - Date.parse(sweep.queued_at)) / 1000)}
        </span>
        {sweep.project && (
          <a class="faint" href={to("jobs", { project: sweep.project })}>
            {sweep.project}
          </a>
        )}
      </div>
      <Command label="the command" words="searches" text={template(sweep)} />
      {shown.map((trial) => (
        <Command key={trial.number} label={`the command of trial ${trial.number}`} words={bestWords(sweep, trial)} text={trial.command} job={jobOf(trial)} />
      ))}
      {hidden > 0 && <p class="faint">{hidden} more on the front: its table, below the charts, has them all.</p>}
    </header>
  );
}

interface CommandProps {
  label: string;
  words: string;
  text: string;
  job?: number | null;
}

function Command({ label, words, text, job = null }: CommandProps) {
  return (
    <div class="sweep-command">
      <span class="sweep-command-words">
        {words}
        {job !== null && (
          <>
            {" "}
            <a href={to(`job/${job}`)}>job {job}</a>
          </>
        )}
      </span>
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Copy text={text} label={`copy ${label}`} />
    </div>
  );
}

function bestWords({ metrics, best }: Sweep, trial: Trial): string {
  const values = resultsOf(trial);
  const found = metrics.map(({ name }, place) => `${name} ${values?.[place] === undefined ? "?" : number(values[place]!)}`);
  return `${best.length > 1 ? `trial ${trial.number}` : "best"}: ${found.join(", ")}`;
}

function method({ spec, parallel }: Sweep): string {
  const words = [spec.method === "adaptive" ? `adaptive (${spec.sampler})` : spec.method, spec.pruner && `pruned by ${spec.pruner}`];
  return [...words, `${parallel} at once`].filter(Boolean).join(", ");
}
