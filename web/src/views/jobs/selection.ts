// Which jobs are chosen. By number, so that it holds while rows come and go; or all that match, which the daemon finds.
import { signal } from "@preact/signals";

/** Everything that matched at one moment, without the jobs that were taken out since. */
export interface AllThatMatch {
  until: number; // the newest of them: what is added later is not meant
  jobs: number;
  without: ReadonlySet<number>;
}

export const chosen = signal<ReadonlySet<number>>(new Set());
export const allThatMatch = signal<AllThatMatch | null>(null);

export function isChosen(id: number): boolean {
  const all = allThatMatch.value;
  return all ? id <= all.until && !all.without.has(id) : chosen.value.has(id);
}

export function toggle(id: number): void {
  choose([id], !isChosen(id));
}

/** Choose these too, or take them out. */
export function choose(ids: Iterable<number>, isIn = true): void {
  const all = allThatMatch.value;
  const next = new Set(all ? all.without : chosen.value);
  for (const id of ids) {
    if (isIn === (all === null)) next.add(id);
    else next.delete(id);
  }
  if (all) allThatMatch.value = { ...all, without: next };
  else chosen.value = next;
}

export function chooseAll(all: Omit<AllThatMatch, "without">): void {
  chosen.value = new Set();
  allThatMatch.value = { ...all, without: new Set() };
}

export function chooseNone(): void {
  chosen.value = new Set();
  allThatMatch.value = null;
}
