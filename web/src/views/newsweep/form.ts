// The form of a new sweep, as it was typed, and the spec that it is. The daemon reads ranges, conditions and numbers by the
// rules that hold for a file, too: what is wrong comes back with the name of its field.
import type { components } from "../../api/schema";

/** Everything as it was typed. */
export interface SweepForm {
  name: string;
  command: string;
  method: "grid" | "random" | "adaptive" | "population";
  samples: string;
  sampler: string;
  seed: string;
  metric: string;
  goal: "min" | "max";
  target: string;
  from: "metrics" | "log" | "file" | "wandb";
  pattern: string;
  path: string;
  pruner: string;
  pruneAfter: string;
  steps: string;
  population: string;
  repeat: string;
  over: string;
  parallel: string;
  where: string;
  shuffle: boolean;
}

export interface ParameterLine {
  name: string;
  values: string; // as behind -p: `0.1 0.01`, `1e-4..1e-1:log`, `1 2 if optimizer=sgd`
}

export type SweepField = keyof SweepForm;
export type Spec = components["schemas"]["NewSweepBody"]["spec"];
export type Problems = Partial<Record<SweepField | "parameters" | `parameters.${number}`, string>>;

export const EMPTY: SweepForm = {
  name: "",
  command: "",
  method: "grid",
  samples: "",
  sampler: "",
  seed: "",
  metric: "",
  goal: "min",
  target: "",
  from: "metrics",
  pattern: "",
  path: "",
  pruner: "",
  pruneAfter: "",
  steps: "",
  population: "",
  repeat: "",
  over: "",
  parallel: "",
  where: "",
  shuffle: false,
};

// What the API calls a field of the form.
const FIELDS: Record<string, SweepField> = { metrics: "metric", prune_after: "pruneAfter" };
const NAME = /\{([^\W\d][\w-]*(?:\.[\w-]+)*)\}/gu;

/** The field that a refusal is about; null: none of this form. */
export function fieldOf(field: string, form: SweepForm): keyof Problems | null {
  if (/^parameters(\.\d+)?$/.test(field)) return field as keyof Problems;
  if (field === "results") return form.from === "log" ? "pattern" : form.from === "file" ? "path" : "metric";
  if (field === "metrics" && typeof real(form.target) === "string" && form.target.trim()) return "target";
  const own = FIELDS[field] ?? field;
  return own in EMPTY ? (own as SweepField) : null;
}

export function specOf(form: SweepForm, parameters: ParameterLine[], seed: number): Spec {
  const isAdaptive = form.method === "adaptive";
  return {
    command: form.command,
    parameters: parameters.map(({ name, values }) => ({ name: name.trim(), values })),
    where: form.where.split("\n").filter((line) => line.trim()),
    method: form.method,
    metrics: metricsOf(form),
    name: form.name.trim(),
    seed: form.seed.trim() ? whole(form.seed) : seed,
    shuffle: form.method === "grid" && form.shuffle,
    ...(form.samples.trim() && { samples: whole(form.samples) }),
    ...(isAdaptive && form.sampler && { sampler: form.sampler }),
    ...(form.pruner && { pruner: form.pruner, ...(form.pruneAfter.trim() && { prune_after: whole(form.pruneAfter) }) }),
    ...(form.pruner === "hyperband" && form.steps.trim() && { steps: whole(form.steps) }),
    ...(form.method === "population" && form.population.trim() && { population: whole(form.population) }),
    ...(form.over.trim() && { over: form.over.trim() }),
    ...(form.repeat.trim() && { repeat: whole(form.repeat) }),
    ...(form.parallel.trim() && { parallel: whole(form.parallel) }),
    ...(form.from === "log" && { results: { from: "log", pattern: form.pattern } }),
    ...(form.from === "file" && { results: { from: "file", path: form.path } }),
    ...(form.from === "wandb" && { results: { from: "wandb" } }),
  };
}

/** What the daemon would not hear of: a target goes with a metric. */
export function problemsOf(form: SweepForm): Problems {
  return form.target.trim() && metricsOf(form).length !== 1 ? { target: "It needs one metric: which one is to reach it?" } : {};
}

/** The places in the command that nothing fills yet: no parameter, and not the number of the repeat. */
export function missingNames({ command, over }: SweepForm, parameters: ParameterLine[]): string[] {
  const known = new Set([...parameters.map((one) => one.name.trim()), over.trim()]);
  return [...new Set([...command.matchAll(NAME)].map((found) => found[1]!))].filter((name) => !known.has(name));
}

/** `val_loss`, `accuracy:max`, or several with commas between; only one has a target. */
function metricsOf({ metric, goal, target }: SweepForm): { name: string; goal: string; target?: number | string }[] {
  const found = metric
    .split(",")
    .map((text) => text.trim())
    .filter(Boolean)
    .map((text) => {
      const own = /^(.+):(min|max)$/.exec(text);
      return own ? { name: own[1]!, goal: own[2]! } : { name: text, goal };
    });
  return found.map((one) => (found.length === 1 && target.trim() ? { ...one, target: real(target) } : one));
}

function real(text: string): number | string {
  return Number.isFinite(Number(text)) ? Number(text) : text;
}

/** The number; the text itself where it is none, so that the daemon says what is wrong with it. */
function whole(text: string): number | string {
  return /^[+-]?\d{1,15}$/.test(text.trim()) ? Number(text) : text;
}
