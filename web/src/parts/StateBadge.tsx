import type { State } from "../api/types";

const WORDS: Partial<Record<State, string>> = { timed_out: "timed out" };

/** A job's state by colour and by word: not all users see the colours. */
export function StateBadge({ state, isEnding }: { state: State; isEnding?: boolean }) {
  if (isEnding) return <span class="badge state-cancelled">ending</span>;
  return <span class={`badge state-${state}`}>{WORDS[state] ?? state}</span>;
}
