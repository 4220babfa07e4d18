import type { SweepState, TrialState } from "./shapes";

/** The state of a sweep or a trial, by colour and by word. */
export function Badge({ state }: { state: SweepState | TrialState }) {
  return <span class={`badge sweep-${state}`}>{state}</span>;
}
