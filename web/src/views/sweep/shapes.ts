// What the routes of sweeps answer with.
import type { components } from "../../api/schema";

type Schemas = components["schemas"];

export type Trial = Schemas["TrialObject"];
export type TrialPage = Schemas["TrialPageBody"];
export type TrialState = Trial["state"];
export type Metric = Schemas["MetricObject"];
export type Importance = Schemas["ImportanceBody"];
export type Sweep = Omit<Schemas["SweepObject"], "spec"> & { spec: Spec };
export type SweepState = Sweep["state"];
export type SweepList = Omit<Schemas["SweepList"], "sweeps"> & { sweeps: Sweep[] };
export type Act = Schemas["SweepAct"];
export type Acted = Schemas["ActedSweep"];

/** Whether it is one of those that are compared: a pruned one has the values of an earlier step. */
export function isCompared(trial: Trial): boolean {
  return trial.values !== null && (trial.state === "complete" || trial.state === "reused");
}

/** Its numbers. Where a point is repeated, its first trial stands for the point, with the means of all repeats. */
export function resultsOf(trial: Trial): number[] | null {
  return trial.means ?? trial.values;
}

// The API leaves open what stands in a spec; this is what it says (sweeps/spec.py).
export interface Spec {
  command?: string;
  words?: string[];
  parameters: (Choice | Range)[];
  method: "grid" | "random" | "adaptive" | "population";
  sampler: string;
  samples: number | null;
  pruner: string;
}

export interface Choice {
  name: string;
  values: (string | null)[];
}

export interface Range {
  name: string;
  low: number;
  high: number;
  scale: "linear" | "log";
}
