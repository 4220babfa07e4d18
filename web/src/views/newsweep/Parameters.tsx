import { Icon } from "../../parts/Icon";
import { missingNames, type ParameterLine, type Problems, type SweepForm } from "./form";

interface Props {
  form: SweepForm;
  lines: ParameterLine[];
  problems: Problems;
  change: (lines: ParameterLine[]) => void;
}

const HINT = "0.1 0.01 · 1e-4..1e-1:log · 1..8 · 0..1:0.1 (a step) · 16..1024:log:int · batch none · 0.5..0.99 if optimizer=sgd";

/** The names and the values to try, one line each. */
export function Parameters({ form, lines, problems, change }: Props) {
  const missing = missingNames(form, lines);
  const edit = (place: number, some: Partial<ParameterLine>) =>
    change(lines.map((line, at) => (at === place ? { ...line, ...some } : line)));
  const add = (name: string) => change([...lines, { name, values: "" }]);
  return (
    <section class="panel" aria-label="parameters">
      <h2>Parameters</h2>
      <p class="faint field-note">{HINT}</p>
      {lines.map((line, place) => {
        const problem = problems[`parameters.${place}`];
        const note = `parameter-${place}-note`;
        const attributes = { "aria-invalid": Boolean(problem), "aria-describedby": note, autocomplete: "off", spellcheck: false };
        return (
          <div key={place} class="parameter field">
            <input
              {...attributes}
              class="mono"
              aria-label={`name of parameter ${place + 1}`}
              placeholder="lr"
              value={line.name}
              onInput={(event) => edit(place, { name: event.currentTarget.value })}
            />
            <input
              {...attributes}
              class="mono"
              aria-label={`values of ${line.name || `parameter ${place + 1}`}`}
              placeholder="1e-4..1e-1:log"
              value={line.values}
              onInput={(event) => edit(place, { values: event.currentTarget.value })}
            />
            <button type="button" class="quiet" aria-label={`remove ${line.name || `parameter ${place + 1}`}`} onClick={() => change(lines.filter((_, at) => at !== place))}>
              <Icon name="close" />
            </button>
            <p id={note} class="error field-note">
              {problem}
            </p>
          </div>
        );
      })}
      <p class="error field-note">{problems.parameters}</p>
      <div class="submit-ticks">
        {missing.map((name) => (
          <button key={name} type="button" onClick={() => add(name)}>
            Add {name}
          </button>
        ))}
        <button type="button" onClick={() => add("")}>
          Add a parameter
        </button>
      </div>
    </section>
  );
}
