// The keyboard. Views say what their keys do; `?` shows all of them.
import { signal } from "@preact/signals";
import { go } from "./router";

export interface Key {
  keys: string; // "j", "g n", "/"
  does: string;
  run: () => void;
  isAct?: true; // on jobs: where some are chosen, the palette names them
}

export const isHelpOpen = signal(false);
export const isPaletteOpen = signal(false);

export const PALETTE = "Ctrl K"; // on a Mac also Cmd K

const PAUSE = 1000; // milliseconds between the two keys of a pair

const EVERYWHERE: Key[] = [
  { keys: "g n", does: "go to Now", run: () => go("now") },
  { keys: "g j", does: "go to Jobs", run: () => go("jobs") },
  { keys: "g t", does: "go to the Timeline", run: () => go("timeline") },
  { keys: "g h", does: "go to the History", run: () => go("history") },
  { keys: "g w", does: "go to the Sweeps", run: () => go("sweeps") },
  { keys: "g s", does: "go to Submit", run: () => go("submit") },
  { keys: "g m", does: "go to Manage", run: () => go("manage") },
  { keys: "?", does: "show the keys", run: () => (isHelpOpen.value = true) },
];
const layers: Key[][] = [EVERYWHERE];
const FIELD = "input:not([type='checkbox']), textarea, select, [contenteditable]";
const CONTROL = "a[href], button, summary, input[type='checkbox']";

/** Keys of a view, while it is shown; the returned function takes them away. */
export function addKeys(keys: Key[]): () => void {
  layers.push(keys);
  return () => {
    layers.splice(layers.indexOf(keys), 1);
  };
}

function allKeys(): Key[] {
  return layers.flat();
}

/** The keys of every view, and those of the view that is shown. */
export function keyGroups(): { everywhere: Key[]; here: Key[] } {
  return { everywhere: EVERYWHERE, here: layers.slice(1).flat() };
}

let before = "";
let beforeAt = 0;
let isClicked = false; // the focus was set by a click, not by the keyboard

export function listenToKeys(): void {
  document.addEventListener("pointerdown", () => (isClicked = true));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Tab") isClicked = false;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
      event.preventDefault(); // the browser's own search field
      if (!document.querySelector("dialog[open]")) isPaletteOpen.value = true;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const known = keysFor(event);
    const pair = event.timeStamp - beforeAt < PAUSE ? `${before} ${event.key}` : "";
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

/** Which keys the focus leaves: none of a dialog and of a field, only those of every view of a control.
 *
 * A control that was clicked keeps Enter and the like, and leaves the letters: after a click on a filter the user goes
 * on with `j` and `x`. */
function keysFor({ key, target }: KeyboardEvent): Key[] {
  if (!(target instanceof Element)) return allKeys();
  if (document.querySelector("dialog[open]") || target.closest(FIELD)) return [];
  const isLetter = key.length === 1 && key !== " ";
  return target.closest(CONTROL) && !(isClicked && isLetter) ? EVERYWHERE : allKeys();
}
