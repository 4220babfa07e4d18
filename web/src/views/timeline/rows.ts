// From attempts to rows of bars. What runs at the same time in one row stands on lanes below each other.

export interface Item {
  job: number;
  attempt: number;
  name: string;
  project: string;
  user: string;
  gpus: (number | string)[];
  node: string;
  node_gpus: string;
  started_at: string;
  ended_at: string | null;
  state: string;
  cause: string | null;
}

export interface Bar {
  item: Item;
  begin: number; // milliseconds since the epoch
  end: number; // Infinity while it runs
}

export interface Row {
  key: string;
  label: string;
  isCard: boolean;
  lanes: Bar[][]; // in a lane no two overlap, and the earlier comes first
  bars: Bar[];
  top: number; // pixels
  height: number;
}

export const GROUPINGS = ["gpu", "project", "user", "job"] as const;
export type Grouping = (typeof GROUPINGS)[number];

const LANE = 18; // pixels
const PADDING = 4;
const CARD = 40; // least height of a row with two lines of text
const SLACK = 500; // milliseconds: clocks of two attempts, not two attempts at once
const WITHOUT = "no GPU";
const NODE = "node ";

/** `gpus`: those that have a row even where nothing ran on them. */
export function rowsOf(items: readonly Item[], by: Grouping, gpus: readonly string[]): Row[] {
  const groups = new Map<string, Bar[]>();
  if (by === "gpu") for (const gpu of gpus) groups.set(gpu, []);
  for (const item of items) {
    const bar = { item, begin: Date.parse(item.started_at), end: item.ended_at ? Date.parse(item.ended_at) : Infinity };
    for (const key of keysOf(item, by)) {
      const group = groups.get(key);
      if (group) group.push(bar);
      else groups.set(key, [bar]);
    }
  }
  let top = 0;
  return [...groups]
    .sort(([a], [b]) => inOrder(a, b, by))
    .map(([key, bars]) => {
      bars.sort((a, b) => a.begin - b.begin);
      const lanes = packed(bars);
      const least = by === "job" ? 0 : CARD;
      const height = Math.max(least, lanes.length * LANE + 2 * PADDING);
      const row = { key, label: labelOf(key, by, bars), isCard: by === "gpu" && key !== WITHOUT && !key.startsWith(NODE), lanes, bars, top, height };
      top += height;
      return row;
    });
}

/** Where a lane stands in its row, and how high it is. */
export function laneBox(row: Row, lane: number): [number, number] {
  const height = (row.height - 2 * PADDING) / Math.max(1, row.lanes.length);
  return [row.top + PADDING + lane * height, height];
}

/** Milliseconds of a stretch of time in which something of this row ran. */
export function busyTime(row: Row, first: number, last: number): number {
  let busy = 0;
  let until = first;
  for (const bar of row.bars) {
    if (bar.begin >= last) break;
    const end = Math.min(bar.end, last);
    if (end > until) {
      busy += end - Math.max(bar.begin, until);
      until = end;
    }
  }
  return busy;
}

/** Milliseconds of GPUs: two of them for an hour are two hours. */
export function gpuTime(row: Row, first: number, last: number): number {
  return row.bars.reduce(
    (sum, bar) => sum + Math.max(0, Math.min(bar.end, last) - Math.max(bar.begin, first)) * cards(bar.item),
    0,
  );
}

/** The place of the first bar of a lane that ends after this moment. */
export function firstAfter(lane: readonly Bar[], moment: number): number {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle]!.end > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

function cards(item: Item): number {
  return item.node ? item.node_gpus.split(",").filter(Boolean).length : item.gpus.length;
}

function keysOf(item: Item, by: Grouping): string[] {
  if (by === "gpu" && item.node) return [`${NODE}${item.node}`];
  if (by === "gpu") return item.gpus.length ? item.gpus.map(String) : [WITHOUT];
  return [by === "job" ? String(item.job) : item[by]];
}

function labelOf(key: string, by: Grouping, bars: Bar[]): string {
  if (by === "gpu") return key === WITHOUT || key.startsWith(NODE) ? key : `GPU ${key}`;
  if (by === "job") return `${key} ${bars[0]?.item.name ?? ""}`;
  return key || (by === "project" ? "no project" : "no user");
}

/** By number or by name; of jobs the newest first; nodes behind the cards of this machine; what is nameless last. */
function inOrder(a: string, b: string, by: Grouping): number {
  if (by === "job") return Number(b) - Number(a);
  const rank = (key: string) => (!key || key === WITHOUT ? 2 : by === "gpu" && key.startsWith(NODE) ? 1 : 0);
  return rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true });
}

function packed(bars: readonly Bar[]): Bar[][] {
  const lanes: Bar[][] = [];
  for (const bar of bars) {
    const free = lanes.find((lane) => lane[lane.length - 1]!.end <= bar.begin + SLACK);
    if (free) free.push(bar);
    else lanes.push([bar]);
  }
  return lanes;
}
