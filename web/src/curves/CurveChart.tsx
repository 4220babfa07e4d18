import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useIsDark } from "../state/useIsDark";
import { duration } from "../words";
import { number, type By, type Line } from "./lines";

interface Props {
  label: string;
  lines: Line[];
  by: By;
  isLog: boolean;
  height?: number;
  open?: (key: string) => void;
}

const HEIGHT = 180; // pixels
const LEFT = 58;
const BELOW = 28;
const NEAR = 24; // pixels around a line in which it is pointed at
const MARGIN = 0.06; // of the scale, above and below

/** One metric of one or several jobs, each with its own points. What is under the pointer is said beside the name. */
export default function CurveChart({ label, lines, by, isLog, height = HEIGHT, open }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<{ line: number; index: number } | null>(null);
  const isDark = useIsDark();
  const latest = useRef({ lines, pointed, open });
  latest.current = { lines, pointed, open };
  const look = lines.map(({ key, colour, dash, width, opacity }) => [key, colour, dash, width, opacity].join()).join("|");

  useEffect(() => {
    const holder = place.current!;
    const made = new uPlot(options(holder, { by, isLog, height }, latest.current.lines, latest, setPointed), dataOf(latest.current.lines), holder);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: holder.clientWidth, height }));
    observer.observe(holder);
    const click = () => {
      const { lines: shown, pointed: at, open: opens } = latest.current;
      if (at && opens) opens(shown[at.line]!.key);
    };
    made.over.addEventListener("click", click);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [isDark, by, isLog, look, height]);
  useEffect(() => plot.current?.setData(dataOf(lines)), [lines]);

  return (
    <figure class="chart">
      <figcaption>
        {label}
        <Pointed lines={lines} by={by} pointed={pointed} />
      </figcaption>
      <div ref={place} class={open ? "curve is-link" : "curve"} role="img" aria-label={spoken(label, lines, by)} />
    </figure>
  );
}

function Pointed({ lines, by, pointed }: { lines: Line[]; by: By; pointed: { line: number; index: number } | null }) {
  const line = pointed && lines[pointed.line];
  const x = line?.x[pointed!.index];
  if (!line || x === undefined) return null;
  const at = by === "time" ? `at ${duration(x)}` : `at step ${number(x)}`;
  return <span class="faint">{` ${number(line.y[pointed!.index]!)} ${at}${lines.length > 1 ? ` · ${line.label}` : ""}`}</span>;
}

/** The chart in words: what it shows, and where it stands. */
function spoken(label: string, lines: Line[], by: By): string {
  const last = lines.length === 1 ? lines[0]!.y.at(-1) : undefined;
  const now = last === undefined ? `${lines.length} lines` : `now ${number(last)}`;
  return `${label} by ${by}, ${now}`;
}

function dataOf(lines: Line[]): uPlot.AlignedData {
  if (!lines.length) return [[], []];
  return uPlot.join(
    lines.map(({ x, y }) => {
      const [xs, ys]: [number[], number[]] = [[], []];
      x.forEach((at, place) => {
        if (at !== x[place + 1]) {
          xs.push(at); // of several values at one place the last one counts
          ys.push(y[place]!);
        }
      });
      return [xs, ys] as uPlot.AlignedData;
    }),
  );
}

interface Look {
  by: By;
  isLog: boolean;
  height: number;
}

type Latest = { current: { lines: Line[] } };

function options(
  holder: HTMLElement,
  { by, isLog, height }: Look,
  lines: Line[],
  latest: Latest,
  point: (place: { line: number; index: number } | null) => void,
): uPlot.Options {
  const style = getComputedStyle(holder);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: holder.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false }, move: (self, left, top) => near(self, latest.current.lines, left, top, point) },
    scales: { x: { time: false }, y: isLog ? { distr: 3 } : { range: (_, low, high) => span(low, high) } },
    axes: [
      { ...axis, size: BELOW, space: 70, values: (_, ticks) => ticks.map((tick) => (by === "time" ? (tick ? duration(tick) : "0") : number(tick))) },
      { ...axis, size: LEFT, space: 28, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        stroke: colour(line.colour),
        width: line.width ?? 1.5,
        alpha: line.opacity ?? 1,
        spanGaps: true,
        points: { show: line.x.length === 1, size: 6, fill: colour(line.colour) },
        ...(line.dash ? { dash: line.dash } : {}),
      })),
    ],
    hooks: { draw: [(self) => crosses(self, latest.current.lines, colour)] },
  };
}

function span(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const margin = (high - low) * MARGIN || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

/** The point that is nearest to the pointer. */
function near(self: uPlot, lines: Line[], left: number, top: number, point: (place: { line: number; index: number } | null) => void): [number, number] {
  let found: { line: number; index: number } | null = null;
  let distance = NEAR ** 2;
  if (left >= 0) {
    const low = self.posToVal(left - NEAR, "x");
    const high = self.posToVal(left + NEAR, "x");
    lines.forEach((line, number) => {
      for (let index = first(line.x, low); index < line.x.length && line.x[index]! <= high; index++) {
        const far = (self.valToPos(line.x[index]!, "x") - left) ** 2 + ((self.valToPos(line.y[index]!, "y") - top) / 2) ** 2;
        if (far <= distance) [found, distance] = [{ line: number, index }, far];
      }
    });
  }
  point(found);
  return [left, top];
}

/** The first place of a number that is not below this one. */
function first(numbers: number[], least: number): number {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle]! < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Lines that were ended early end with a cross: not all users see the colours. */
function crosses(self: uPlot, lines: Line[], colour: (name: string) => string): void {
  const size = 4 * uPlot.pxRatio;
  const { ctx } = self;
  for (const { endsWith, x, y, colour: name } of lines) {
    if (endsWith !== "cross" || !x.length) continue;
    const [left, top] = [self.valToPos(x.at(-1)!, "x", true), self.valToPos(y.at(-1)!, "y", true)];
    ctx.save();
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = 2 * uPlot.pxRatio;
    ctx.beginPath();
    ctx.moveTo(left - size, top - size);
    ctx.lineTo(left + size, top + size);
    ctx.moveTo(left - size, top + size);
    ctx.lineTo(left + size, top - size);
    ctx.stroke();
    ctx.restore();
  }
}
