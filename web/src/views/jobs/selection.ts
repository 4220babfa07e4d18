// Which jobs are chosen, by number: it holds while rows come and go.
import { signal } from "@preact/signals";

export const chosen = signal<ReadonlySet<number>>(new Set());

export function toggle(id: number): void {
  const next = new Set(chosen.value);
  if (!next.delete(id)) next.add(id);
  chosen.value = next;
}

export function choose(ids: Iterable<number>): void {
  chosen.value = new Set([...chosen.value, ...ids]);
}

export function chooseNone(): void {
  chosen.value = new Set();
}
