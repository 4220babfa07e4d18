// The keyboard. Views say what their keys do; `?` shows all of them.
import { signal } from "@preact/signals";
import { go } from "./router";

export interface Key {
  keys: string; // "j", "g n", "/"
  does: string;
  run: () => void;
}

export const isHelpOpen = signal(false);

const PAUSE = 1000; // milliseconds between the two keys of a pair

const layers: Key[][] = [
  [
    { keys: "g n", does: "go to Now", run: () => go("now") },
    { keys: "g j", does: "go to Jobs", run: () => go("jobs") },
    { keys: "g t", does: "go to the Timeline", run: () => go("timeline") },
    { keys: "g w", does: "go to the Sweeps", run: () => go("sweeps") },
    { keys: "g s", does: "go to Submit", run: () => go("submit") },
    { keys: "?", does: "show these keys", run: () => (isHelpOpen.value = !isHelpOpen.value) },
  ],
];

/** Keys of a view, while it is shown; the returned function takes them away. */
export function addKeys(keys: Key[]): () => void {
  layers.push(keys);
  return () => {
    layers.splice(layers.indexOf(keys), 1);
  };
}

export function allKeys(): Key[] {
  return layers.flat();
}

let before = "";
let beforeAt = 0;

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "Escape") isHelpOpen.value = false;
    const pair = event.timeStamp - beforeAt < PAUSE ? `${before} ${event.key}` : "";
    const known = allKeys();
    const found = known.findLast((one) => one.keys === pair) ?? known.findLast((one) => one.keys === event.key);
    before = event.key;
    beforeAt = event.timeStamp;
    if (found) {
      event.preventDefault();
      before = "";
      found.run();
    }
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
