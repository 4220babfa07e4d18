import { useMemo } from "preact/hooks";
import { to } from "../../router";
import { count } from "../../words";
import { number } from "./axes";
import type { Model } from "./model";
import { jobOf, openTrial } from "./opening";
import { resultsOf, type Trial } from "./shapes";

/** Of several metrics the trials that no other beats, in the order of the first one: the front of the scatter in words. */
export function Front({ model }: { model: Model }) {
  const { metrics, parameters } = model.space.value;
  const trials = model.trials.value;
  const best = model.best.value;
  const front = useMemo(() => {
    const first = (trial: Trial) => resultsOf(trial)?.[0] ?? NaN;
    return trials.filter((trial) => best.has(trial.number)).sort((a, b) => first(a) - first(b));
  }, [trials, best]);
  if (metrics.length < 2 || !front.length) return null;
  const point = (trial: Trial | null) => (model.pointed.value = trial?.number ?? null);
  return (
    <section class="panel sweep-front" aria-label="Pareto front">
      <h2>
        Pareto front <span class="faint">{count(front.length, "trial")} that no other beats</span>
      </h2>
      <div class="sweep-front-scroll" tabIndex={0} role="region" aria-label="trials of the front">
        <table>
          <thead>
            <tr>
              <th scope="col">trial</th>
              <th scope="col">job</th>
              {metrics.map(({ name, goal }) => (
                <th key={name} scope="col">
                  {name} ({goal})
                </th>
              ))}
              {parameters.map(({ name }) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {front.map((trial) => (
              <tr
                key={trial.number}
                class={model.pointed.value === trial.number ? "is-pointed" : ""}
                onMouseEnter={() => point(trial)}
                onMouseLeave={() => point(null)}
                onFocusIn={() => point(trial)}
                onFocusOut={() => point(null)}
                onClick={(event) => (event.target as Element).closest("a") ?? openTrial(trial)}
              >
                <td>{trial.number}</td>
                <td>
                  <JobLink job={jobOf(trial)} />
                </td>
                {metrics.map(({ name }, place) => (
                  <td key={name}>{result(trial, place)}</td>
                ))}
                {parameters.map(({ name }) => (
                  <td key={name}>{trial.point[name] ?? "none"}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function JobLink({ job }: { job: number | null }) {
  return job === null ? null : <a href={to(`job/${job}`)}>{job}</a>;
}

/** `0.31`, or `0.31 ± 0.02` where the point was repeated. */
function result(trial: Trial, place: number): string {
  const value = resultsOf(trial)?.[place];
  if (value === undefined) return "?";
  const spread = trial.spreads?.[place];
  return spread === undefined ? number(value) : `${number(value)} ± ${Number(spread.toPrecision(2))}`;
}
