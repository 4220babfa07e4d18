import { number } from "./axes";
import type { Model } from "./model";
import { resultsOf } from "./shapes";

/** The trial that is pointed at, in the corner of a chart: a box that follows the pointer would cover its neighbours. */
export function Tip({ model }: { model: Model }) {
  const pointed = model.pointed.value;
  const trial = pointed === null ? undefined : model.trials.value.find((one) => one.number === pointed);
  if (!trial) return null;
  const values = resultsOf(trial);
  return (
    <div class="sweep-tip" role="status">
      <b>
        trial {trial.number}, {trial.state}
      </b>
      {model.space.value.metrics.map((metric, place) => (
        <span key={metric.name}>
          {metric.name} {values?.[place] === undefined ? "?" : number(values[place]!)}
        </span>
      ))}
      <span class="faint">
        {Object.entries(trial.point)
          .map(([name, value]) => `${name}=${value ?? "none"}`)
          .join(" ")}
      </span>
    </div>
  );
}
