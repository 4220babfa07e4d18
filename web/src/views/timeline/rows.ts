// From attempts to rows of bars. What runs at the same time in one row stands on lanes below each other.
import { stretchOf, type Stretch } from "../../elapsed";

export interface Item {
  job: number;
  attempt: number;
  name: string;
  project: string;
  user: string;
  gpus: (number | string)[];
  share: number; // of each of them
  node: string;
  node_gpus: string;
  started_at: string;
  ended_at: string | null;
  state: string;
  cause: string | null;
  suspended: { since_at: string; until_at: string | null; frees_cards: boolean }[];
}

/** A time in which a card was not this queue's, or in which it was not watched. */
export interface CardUse {
  gpu: string;
  use: "others" | "lost" | "unknown";
  since_at: string;
  until_at: string;
}

export interface CardUses {
  cards: CardUse[];
  until_at: string; // so far they are known
}

/** From the start to the end; it lasts while the job runs or is suspended. */
export interface Bar extends Stretch {
  item: Item;
  suspended: Suspended[]; // the oldest first
}

interface Suspended extends Stretch {
  isFree: boolean; // others could have its cards
}

export interface Row {
  key: string;
  label: string;
  isCard: boolean;
  lanes: Bar[][]; // in a lane no two overlap, and the earlier comes first
  bars: Bar[];
  held: readonly Stretch[]; // when a bar had its cards; the earlier comes first
  uses: Use[]; // of a card, beside the bars
  top: number; // pixels
  height: number;
}

export interface Use extends Stretch {
  use: CardUse["use"];
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
export function rowsOf(items: readonly Item[], by: Grouping, gpus: readonly string[], uses: CardUses): Row[] {
  const groups = new Map<string, Bar[]>();
  if (by === "gpu") for (const gpu of gpus) groups.set(gpu, []);
  for (const item of items) {
    const suspended = item.suspended.map((one) => ({ ...stretchOf(one.since_at, one.until_at), isFree: one.frees_cards }));
    const bar = { item, ...stretchOf(item.started_at, item.ended_at), suspended };
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
      const isCard = by === "gpu" && key !== WITHOUT && !key.startsWith(NODE);
      const row = { key, label: labelOf(key, by, bars), isCard, lanes, bars, held: heldBy(bars), uses: isCard ? usesOf(uses, key) : [], top, height };
      top += height;
      return row;
    });
}

/** Where a lane stands in its row, and how high it is. */
export function laneBox(row: Row, lane: number): [number, number] {
  const height = (row.height - 2 * PADDING) / Math.max(1, row.lanes.length);
  return [row.top + PADDING + lane * height, height];
}

/** Milliseconds of a stretch of time in which something of this row had its cards. */
export function busyTime(row: Row, first: number, last: number): number {
  let busy = 0;
  let until = first;
  for (const held of row.held) {
    if (held.begin >= last) break;
    const end = Math.min(held.end, last);
    if (end > until) {
      busy += end - Math.max(held.begin, until);
      until = end;
    }
  }
  return busy;
}

/** Milliseconds by what a card was. What is left after all else was idle. */
export function cardTimes(row: Row, first: number, last: number): Record<CardUse["use"] | "busy" | "idle", number> {
  const times = { busy: busyTime(row, first, last), others: 0, lost: 0, unknown: 0 };
  for (const { use, begin, end } of row.uses) {
    const [from, to] = [Math.max(begin, first), Math.min(end, last)];
    if (to > from) times[use] += to - from - busyTime(row, from, to);
  }
  return { ...times, idle: Math.max(0, last - first - times.busy - times.others - times.lost - times.unknown) };
}

/** Milliseconds of GPUs: two of them for an hour are two hours, an eighth of one is an eighth of an hour. */
export function gpuTime(row: Row, first: number, last: number): number {
  return row.bars.reduce((sum, bar) => {
    const off = bar.suspended.reduce((all, one) => all + (one.isFree ? within(one, first, last) : 0), 0);
    return sum + (within(bar, first, last) - off) * cards(bar.item);
  }, 0);
}

/** Milliseconds in which something of this row was suspended. */
export function suspendedTime(row: Row, first: number, last: number): number {
  return row.bars.reduce((sum, bar) => bar.suspended.reduce((all, one) => all + within(one, first, last), sum), 0);
}

/** The parts of a bar in which its job ran. */
export function ranIn(bar: Bar): Stretch[] {
  return without(bar, bar.suspended);
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
  return item.node ? cardsThere(item.node_gpus) : item.gpus.length * item.share;
}

/** `0,1` are two; `0,1,+6` are eight, six of them on other nodes. */
function cardsThere(text: string): number {
  return text.split(",").filter(Boolean).reduce((sum, one) => sum + (one.startsWith("+") ? Number(one) : 1), 0);
}

function within({ begin, end }: Stretch, first: number, last: number): number {
  return Math.max(0, Math.min(end, last) - Math.max(begin, first));
}

/** A card is held while its jobs run, and by one that is suspended and has left something there. */
function heldBy(bars: readonly Bar[]): readonly Stretch[] {
  if (bars.every((bar) => !bar.suspended.length)) return bars;
  const parts = bars.flatMap((bar) =>
    without(
      bar,
      bar.suspended.filter((one) => one.isFree),
    ),
  );
  return parts.sort((a, b) => a.begin - b.begin);
}

/** What is left of a stretch; the gaps are in order and do not overlap. */
function without({ begin, end }: Stretch, gaps: readonly Stretch[]): Stretch[] {
  const edges = [begin, ...gaps.flatMap((gap) => [gap.begin, gap.end]), end];
  const found: Stretch[] = [];
  for (let place = 0; place < edges.length; place += 2) {
    if (edges[place + 1]! > edges[place]!) found.push({ begin: edges[place]!, end: edges[place + 1]! });
  }
  return found;
}

/** What lasted until the answer was made is taken to last until the next one. */
function usesOf({ cards, until_at: last }: CardUses, gpu: string): Use[] {
  return cards
    .filter((one) => one.gpu === gpu)
    .map(({ use, since_at: since, until_at: until }) => ({
      use,
      begin: Date.parse(since),
      end: until === last ? Infinity : Date.parse(until),
    }));
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
