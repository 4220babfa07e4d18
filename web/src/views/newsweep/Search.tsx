import type { Inputs } from "../submit/inputs";
import type { SweepField, SweepForm } from "./form";

const SAMPLERS = ["tpe", "gp", "cmaes", "qmc", "bohb", "nsga2"];
const PRUNERS = ["halving", "hyperband", "median"];

/** How points are chosen, how many, and by which numbers they are compared. */
export function Search({ form, inputs }: { form: SweepForm; inputs: Inputs<SweepField> }) {
  const { text, tick, choice } = inputs;
  const words = (values: string[]) => values.map((value) => [value, value] as const);
  return (
    <section class="panel" aria-label="search">
      <div class="submit-grid">
        {choice("method", "Search", [
          ["grid", "every combination (grid)"],
          ["random", "at random"],
          ["adaptive", "by the results so far (Optuna)"],
          ["population", "the best train on (population)"],
        ])}
        {text("samples", "Samples", form.method === "grid" ? "How many trials; empty: all." : "How many trials.")}
        {form.method === "adaptive" && choice("sampler", "Sampler", [["", "usual (tpe)"], ...words(SAMPLERS)])}
        {(form.method !== "grid" || form.shuffle) && text("seed", "Seed", "Empty: one is drawn.")}
        {text("metric", "Metric", "val_loss, or accuracy:max; several with commas between.")}
        {choice("goal", "Better is", [
          ["min", "less"],
          ["max", "more"],
        ])}
        {!form.metric.includes(",") && text("target", "Target", "A trial that reaches it ends the search; empty: none.")}
        {choice("from", "Its value is read from", [
          ["metrics", "the file $DIBS_METRICS"],
          ["log", "the log"],
          ["file", "a file that the trial writes"],
          ["wandb", "wandb.log of its program (W&B)"],
        ])}
        {form.from === "log" && text("pattern", "Expression", "val_loss=(\\S+)")}
        {form.from === "file" && text("path", "File", "result-%j.json; %j is the job's number.")}
        {choice("pruner", "End bad trials early", [["", "no"], ...words(PRUNERS)])}
        {form.pruner && text("pruneAfter", "But not before step", "Empty: 1.")}
        {form.pruner === "hyperband" && text("steps", "Steps of a whole trial", "Empty: as many as the first one takes.")}
        {form.method === "population" && text("population", "Trials of a generation", "Empty: 8.")}
        {text("repeat", "Repeats of each point", "Points are compared by their mean; empty: 1.")}
        {text("over", "Repeat over", "seed: {seed} in the command is 1, 2, 3 …")}
        {text("parallel", "At once", "How many trials run at a time; empty: as many as fit.")}
        {text("where", "Conditions", "Only points that fulfil these, one a line: layers * width < 4096", { isLong: true, class: "field-wide" })}
      </div>
      {form.method === "grid" && <div class="submit-ticks">{tick("shuffle", "In random order")}</div>}
    </section>
  );
}
