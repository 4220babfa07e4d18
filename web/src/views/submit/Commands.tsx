import { count } from "../../words";
import { Field } from "./Field";
import { commandsOf, type Field as FieldName, type Form } from "./form";
import type { Inputs } from "./inputs";

interface Props {
  form: Form;
  problem: string | undefined;
  inputs: Inputs;
  change: (field: FieldName, value: string | boolean) => void;
  submit: () => void;
}

/** Name, output file and command: all that most jobs need. */
export function Commands({ form, problem, inputs, change, submit }: Props) {
  const number = commandsOf(form).length;
  const isShared = number > 1 && form.output.trim() !== "" && !/%[ja]/.test(form.output);
  const hint = isShared ? `All ${number} jobs write to it; with %j in it each has its own.` : "Empty: dibs keeps it; %j is the job's number.";
  return (
    <section class="panel">
      <div class="submit-grid">
        {inputs.text("name", "Name", "What it is called.")}
        {inputs.text("output", "Output file", hint)}
      </div>
      <Field
        field="commands"
        label={form.isScript ? "Script" : "Commands"}
        hint={form.isScript ? "All of it is one job." : "One job a line; lines with # in front are skipped. Ctrl+Enter adds them."}
        problem={problem}
      >
        {(attributes) => (
          <textarea
            {...attributes}
            class="mono submit-commands"
            rows={6}
            spellcheck={false}
            autocapitalize="off"
            placeholder="python train.py --lr 0.1"
            value={form.commands}
            onInput={(event) => change("commands", event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              submit();
            }}
          />
        )}
      </Field>
      <div class="submit-ticks">
        {inputs.tick("isScript", "The whole text is one job")}
        <output class="faint">{count(number, "job")}</output>
      </div>
    </section>
  );
}
