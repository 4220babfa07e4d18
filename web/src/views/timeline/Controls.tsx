import type { Signal } from "@preact/signals";
import { refine } from "../../router";
import { now } from "../../state/clock";
import { duration } from "../../words";
import type { Meaning } from "./colours";
import { GROUPINGS, type Grouping } from "./rows";
import { HOUR, moved, zoomedHere, type Sight } from "./sight";

const LABELS: Record<Grouping, string> = { gpu: "GPU", project: "Project", user: "User", job: "Job" };
const PRESETS = [
  ["1 h", HOUR],
  ["6 h", 6 * HOUR],
  ["24 h", 24 * HOUR],
  ["7 d", 7 * 24 * HOUR],
] as const;

interface Props {
  by: Grouping;
  meaning: Meaning;
  sight: Signal<Sight>;
}

export function Controls({ by, meaning, sight }: Props) {
  const zoom = (factor: number) => (sight.value = zoomedHere(sight.value, factor, now.value));
  const move = (part: number) => (sight.value = moved(sight.value, part * sight.value.span, now.value));
  const { span, end } = sight.value;
  return (
    <div class="timeline-controls">
      <div class="timeline-group" role="group" aria-label="rows">
        {GROUPINGS.map((one) => (
          <button key={one} class="chip" aria-pressed={one === by} onClick={() => refine({ by: one === "gpu" ? "" : one })}>
            {LABELS[one]}
          </button>
        ))}
      </div>
      <div class="timeline-group" role="group" aria-label="how much time">
        {PRESETS.map(([label, milliseconds]) => (
          <button
            key={label}
            class="chip"
            aria-pressed={Math.abs(span / milliseconds - 1) < 0.001}
            onClick={() => (sight.value = { span: milliseconds, end: null })}
          >
            {label}
          </button>
        ))}
      </div>
      <div class="timeline-group" role="group" aria-label="move and zoom">
        <button aria-label="back in time" title="Back in time (←)" onClick={() => move(-0.5)}>
          ‹
        </button>
        <button aria-label="on in time" title="On in time (→)" disabled={end === null} onClick={() => move(0.5)}>
          ›
        </button>
        <button aria-label="see a longer time" title="See a longer time (-)" onClick={() => zoom(2)}>
          −
        </button>
        <button aria-label="see a shorter time" title="See a shorter time (+)" onClick={() => zoom(0.5)}>
          +
        </button>
        <button disabled={end === null} onClick={() => (sight.value = { span, end: null })}>
          Now
        </button>
      </div>
      <label class="timeline-colour">
        Colour{" "}
        <select value={meaning} onChange={(event) => refine({ colour: event.currentTarget.value === "project" ? "project" : "" })}>
          <option value="state">by state</option>
          <option value="project">by project</option>
        </select>
      </label>
      <span class="faint timeline-span">{duration(span / 1000)}</span>
    </div>
  );
}
