// The picture of the timeline, on a canvas: ten thousand bars are drawn anew in a few milliseconds.
import { isBad, USES, type Colour } from "./colours";
import type { Palette } from "./palette";
import { cardTimes, firstAfter, gpuTime, laneBox, ranIn, type Bar, type Item, type Row } from "./rows";
import { ticks } from "./ticks";

export const AXIS = 28; // pixels above the rows
const TEXT = 11; // pixels
const LEAST_TEXT = 30; // pixels of a bar that has room for a word

export interface Scene {
  rows: readonly Row[];
  colour: (item: Item) => Colour;
  first: number; // moments in milliseconds
  last: number;
  now: number;
  top: number; // pixels that are scrolled away above
  width: number;
  height: number;
  labels: number; // pixels of the row's names
  isWhole: boolean; // all that ran is known; otherwise it is unknown what was idle
  chosen: Bar | null;
}

export function paint(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  const { width, height, labels } = scene;
  context.font = `${TEXT}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.fillStyle = palette.of("--panel");
  context.fillRect(0, 0, width, height);
  const inSight = scene.rows.filter((row) => row.top + row.height > scene.top && row.top < scene.top + height - AXIS);

  clip(context, labels, AXIS, width - labels, height - AXIS, () => {
    context.translate(0, AXIS - scene.top);
    for (const row of inSight) paintGround(context, scene, palette, row);
    for (const row of inSight) row.lanes.forEach((_, lane) => paintLane(context, scene, palette, row, lane));
  });
  paintAxis(context, scene, palette);
  clip(context, 0, AXIS, width, height - AXIS, () => {
    context.translate(0, AXIS - scene.top);
    for (const row of inSight) paintLabel(context, scene, palette, row);
  });
}

/** Pixels from the left at which a moment stands. */
export function x({ first, last, labels, width }: Scene, moment: number): number {
  return labels + ((moment - first) / (last - first)) * (width - labels);
}

/** The bar at a point, where there is one. */
export function barAt(scene: Scene, left: number, top: number): Bar | null {
  const y = top - AXIS + scene.top;
  const row = scene.rows.find((one) => y >= one.top && y < one.top + one.height);
  if (!row || left < scene.labels || top < AXIS) return null;
  const [lanesTop, height] = laneBox(row, 0);
  const lane = row.lanes[Math.min(row.lanes.length - 1, Math.max(0, Math.floor((y - lanesTop) / height)))];
  if (!lane) return null;
  const pixel = (scene.last - scene.first) / (scene.width - scene.labels);
  const moment = scene.first + (left - scene.labels) * pixel;
  const bar = lane[firstAfter(lane, moment - 3 * pixel)];
  return bar && bar.begin <= Math.min(scene.now, moment) + 3 * pixel ? bar : null;
}

/** What is written below a row's name: of a GPU what it mostly was beside our jobs, else how much time it had. */
export function remark(row: Row, { first, last, now, isWhole }: Pick<Scene, "first" | "last" | "now" | "isWhole">): string {
  const until = Math.min(last, now);
  if (!isWhole || until <= first) return "";
  if (row.isCard) {
    const times = cardTimes(row, first, until);
    const use = (["idle", "others", "lost", "unknown"] as const).reduce((most, one) => (times[one] > times[most] ? one : most));
    return `${use} ${Math.round((100 * times[use]) / (until - first))} %`;
  }
  const minutes = gpuTime(row, first, until) / 60_000;
  if (minutes < 1) return "";
  const hours = minutes / 60;
  return minutes < 60 ? `${Math.round(minutes)} GPU min` : `${hours < 10 ? hours.toFixed(1) : Math.round(hours)} GPU h`;
}

/** What stays visible below the bars: of a card idle time, unless it was used by others, lost or not watched. */
function paintGround(context: CanvasRenderingContext2D, scene: Scene, palette: Palette, row: Row): void {
  const fill = (begin: number, end: number, variable: string) => {
    const [left, right] = [Math.max(scene.labels, x(scene, begin)), Math.min(scene.width, x(scene, end))];
    context.fillStyle = palette.of(variable);
    if (right > left) context.fillRect(left, row.top + 1, right - left, row.height - 2);
  };
  fill(scene.first, scene.now, "--sunken");
  for (const { use, begin, end } of row.uses) fill(begin, Math.min(end, scene.now), USES[use].variable);
}

function paintLane(context: CanvasRenderingContext2D, scene: Scene, palette: Palette, row: Row, lane: number): void {
  const bars = row.lanes[lane]!;
  const [top, height] = laneBox(row, lane);
  let painted = -1; // the last pixel that is done: a thousand bars within it look like one
  for (let place = firstAfter(bars, scene.first); place < bars.length; place++) {
    const bar = bars[place]!;
    if (bar.begin > scene.last) break;
    const left = Math.max(scene.labels - 2, x(scene, bar.begin));
    const right = Math.min(scene.width + 2, x(scene, Math.min(bar.end, scene.now)));
    if (right <= painted && bar !== scene.chosen) continue;
    const gap = right - left > 4 ? 1 : 0;
    const width = Math.max(1.5, right - left - gap);
    const { variable } = scene.colour(bar.item);
    context.fillStyle = palette.of(variable);
    context.fillRect(left, top + 1, width, height - 2);
    if (bar.suspended.length) hatch(context, scene, palette, bar, [left, left + width], [top + 1, height - 2]);
    painted = left + 1;
    if (bar === scene.chosen) {
      context.strokeStyle = palette.of("--ink");
      context.lineWidth = 2;
      context.strokeRect(left, top + 1, width, height - 2);
    }
    const [from, to] = bar.suspended.length ? widest(scene, bar, left, right) : [left, right];
    if (to - from > LEAST_TEXT) write(context, titleOf(bar.item), Math.max(from, scene.labels) + 4, top + height / 2, to - 4, palette.of("--panel"));
  }
}

/** The times in which a bar's job was suspended: stripes of its colour. */
function hatch(
  context: CanvasRenderingContext2D,
  scene: Scene,
  palette: Palette,
  bar: Bar,
  [first, last]: [number, number],
  [top, height]: [number, number],
): void {
  const { variable } = scene.colour(bar.item);
  for (const { begin, end } of bar.suspended) {
    const left = Math.max(first, x(scene, begin));
    const width = Math.min(last, x(scene, Math.min(end, scene.now))) - left;
    if (width < 1) continue;
    context.fillStyle = palette.of("--panel");
    context.fillRect(left, top, width, height);
    context.fillStyle = palette.stripes(context, variable);
    context.fillRect(left, top, width, height);
    context.strokeStyle = palette.of(variable);
    context.lineWidth = 1;
    if (width > 2) context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
  }
}

/** Where there is most room for a word: in the longest time in sight in which it ran. */
function widest(scene: Scene, bar: Bar, left: number, right: number): [number, number] {
  const parts = ranIn(bar).map(({ begin, end }): [number, number] => [Math.max(left, x(scene, begin)), Math.min(right, x(scene, Math.min(end, scene.now)))]);
  return parts.reduce((most, part) => (part[1] - part[0] > most[1] - most[0] ? part : most), [left, left]);
}

/** Failures have a cross too: not all users see the colours. */
function titleOf(item: Item): string {
  return `${isBad(item) ? "✕ " : ""}${item.job} ${item.name}`;
}

function paintAxis(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  const { width, height, labels } = scene;
  clip(context, labels, 0, width - labels, height, () => {
    for (const tick of ticks(scene.first, scene.last, width - labels)) {
      const at = Math.round(x(scene, tick.at)) + 0.5;
      context.fillStyle = palette.of("--line");
      context.fillRect(at, tick.isDay ? 0 : AXIS - 6, 1, tick.isDay ? height : 6);
      context.fillStyle = palette.of(tick.isDay ? "--ink" : "--faint");
      if (at + 4 + context.measureText(tick.label).width < width) context.fillText(tick.label, at + 4, AXIS / 2);
    }
    context.fillStyle = palette.of("--accent");
    context.fillRect(Math.round(x(scene, scene.now)), 0, 1.5, height);
  });
  context.fillStyle = palette.of("--line");
  context.fillRect(0, AXIS - 1, width, 1);
}

function paintLabel(context: CanvasRenderingContext2D, scene: Scene, palette: Palette, row: Row): void {
  const { labels, width } = scene;
  const middle = row.top + row.height / 2;
  const below = row.height >= 36 ? remark(row, scene) : "";
  write(context, row.label, 10, below ? middle - 8 : middle, labels - 6, palette.of("--ink"));
  write(context, below, 10, middle + 8, labels - 6, palette.of("--faint"));
  context.fillStyle = palette.of("--line");
  context.fillRect(0, row.top + row.height - 1, width, 1);
}

/** As much of a text as there is room for. */
function write(context: CanvasRenderingContext2D, text: string, left: number, middle: number, right: number, colour: string): void {
  const room = Math.floor((right - left) / (TEXT * 0.56));
  if (room < 2 || !text) return;
  context.fillStyle = colour;
  const short = text.length > room ? `${text.slice(0, room - 1)}…` : text;
  context.fillText(short, left, middle, right - left);
}

function clip(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  draw();
  context.restore();
}
