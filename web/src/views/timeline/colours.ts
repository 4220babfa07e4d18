// What a bar's colour says: how its attempt went, or whose it is. The legend has the words.
import type { CardUse, Item } from "./rows";

export type Meaning = "state" | "project";

export interface Colour {
  word: string;
  variable: string; // of the style sheet
}

const STATES: { colour: Colour; states: string[] }[] = [
  { colour: { word: "running", variable: "--busy" }, states: ["running", "suspended"] },
  { colour: { word: "succeeded", variable: "--good" }, states: ["succeeded"] },
  { colour: { word: "failed", variable: "--bad" }, states: ["failed", "timed_out", "lost"] },
  { colour: { word: "cancelled", variable: "--faint" }, states: ["cancelled"] },
];
const OTHER: Colour = { word: "other", variable: "--faint" };
/** What a card was while no job of this queue had it. */
export const USES: Record<CardUse["use"] | "idle", Colour> = {
  idle: { word: "idle", variable: "--sunken" },
  others: { word: "used by others", variable: "--warn-ground" },
  lost: { word: "lost", variable: "--bad-ground" },
  unknown: { word: "unknown", variable: "--panel" },
};
const HUES = 8; // --bar-1 to --bar-8 of timeline.css

const BAD = new Set(["failed", "timed_out", "lost"]);

export const isBad = (item: Item) => BAD.has(item.state);

/** A function from items to colours, and those that are used. */
export function colours(items: readonly Item[], meaning: Meaning): { of: (item: Item) => Colour; legend: Colour[] } {
  const known = meaning === "state" ? byState() : byProject(items);
  const key = (item: Item) => (meaning === "state" ? item.state : item.project);
  const of = (item: Item) => known.get(key(item)) ?? OTHER;
  const used = new Set(items.map(of));
  return { of, legend: [...new Set(known.values()), OTHER].filter((colour) => used.has(colour)) };
}

function byState(): Map<string, Colour> {
  return new Map(STATES.flatMap(({ colour, states }) => states.map((state) => [state, colour] as const)));
}

/** The projects that have the most bars get a colour of their own. */
function byProject(items: readonly Item[]): Map<string, Colour> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(item.project, (counts.get(item.project) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, HUES);
  return new Map(most.map(([name], place) => [name, { word: name || "no project", variable: `--bar-${place + 1}` }]));
}
