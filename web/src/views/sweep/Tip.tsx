import { number } from "./axes";
import type { Model } from "./model";

/** The trial under the pointer, in the corner of a chart: a box that follows the pointer would cover its neighbours. */
export function Tip({ model }: { model: Model }) {
  const pointed = model.pointed.value;
  const trial = pointed === null ? undefined : model.trials.value.find((one) => one.number === pointed);
  if (!trial) return null;
  return (
    <div class="sweep-tip" aria-hidden="true">
      <b>
        trial {trial.number}, {trial.state}
      </b>
      {model.space.value.metrics.map((metric, place) => (
        <span key={metric.name}>
          {metric.name} {trial.values?.[place] === undefined ? "?" : number(trial.values[place]!)}
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
