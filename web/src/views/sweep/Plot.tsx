import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useIsDark } from "../../state/useIsDark";
import { number, type Axis } from "./axes";
import { paintMarks, type Marks, type Style } from "./marks";

const HEIGHT = 260; // pixels
const LEFT = 58;
const BELOW = 30;
const MARGIN = 0.05; // of a scale, at either end
const MANY = 1500; // points; more than these are drawn smaller
const SMALLEST = 0.55; // of their size
const LARGE = 5; // pixels: marks of this size stand out, and keep it
const NEAR = 14; // pixels around a point in which it is pointed at
const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

interface Props {
  label: string;
  x: Axis;
  y: Axis;
  marks: Marks;
  styles: readonly Style[];
  line: { x: number[]; y: number[] } | null; // a step at each point
  pointed: number; // the mark that is pointed at, -1 for none
  point: (mark: number) => void;
  open: (mark: number) => void;
}

/** Points in a frame of two axes. uPlot draws the frame and the line; the points have shapes and are drawn here.
 *
 * Arrow keys point at one point after the other, and Enter opens its job. */
export function Plot(props: Props) {
  const { label, x, y, marks, line } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isDark = useIsDark();

  useEffect(() => {
    const holder = place.current!;
    const made = new uPlot(options(holder, latest), data(latest.current), holder);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: holder.clientWidth, height: HEIGHT }));
    observer.observe(holder);
    const click = () => latest.current.pointed >= 0 && latest.current.open(latest.current.pointed);
    const leave = () => latest.current.point(-1);
    made.over.addEventListener("click", click);
    made.over.addEventListener("mouseleave", leave);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [isDark, x.key, x.kind, y.key, y.kind]);
  useEffect(() => {
    plot.current?.setData(data(latest.current)); // the scales follow the axes; setData asks for their ranges anew
  }, [line, x, y]);
  useEffect(() => plot.current?.redraw(false, false), [marks]);
  useEffect(() => mark(plot.current, marks, props.pointed), [marks, props.pointed, isDark]);

  const press = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (step) props.point(beside(marks, props.pointed, step));
    else if (event.key !== "Enter") return;
    else if (props.pointed >= 0) props.open(props.pointed);
    event.preventDefault();
    event.stopPropagation(); // the leaderboard has a trial of its own that Enter opens
  };
  return <div ref={place} class="sweep-plot" role="img" aria-label={`${label}; arrow keys choose a point, Enter opens its job`} tabIndex={0} onKeyDown={press} />;
}

function data({ line, x }: Props): uPlot.AlignedData {
  return line ? [line.x, line.y] : [[x.low, x.high], [null, null]]; // without any x there would be no frame
}

function options(holder: HTMLElement, latest: { current: Props }): uPlot.Options {
  const style = getComputedStyle(holder);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const words = (which: "x" | "y") => latest.current[which].words;
  const axis = (which: "x" | "y"): uPlot.Axis => ({
    stroke: colour("--faint"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    ...(latest.current[which].kind === "category"
      ? { splits: () => words(which).map((_, index) => index), values: () => words(which).map(short) }
      : { values: written }),
  });
  const scale = (which: "x" | "y"): uPlot.Scale => ({
    time: false,
    distr: latest.current[which].kind === "log" ? 3 : 1,
    range: () => span(latest.current[which]),
  });
  return {
    width: holder.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, move: (self, left, top) => near(self, latest, left, top) },
    scales: { x: scale("x"), y: scale("y") },
    axes: [
      { ...axis("x"), size: BELOW, space: 60 },
      { ...axis("y"), size: LEFT, space: 28 },
    ],
    series: [
      {},
      {
        stroke: colour("--ink"),
        width: 1.5,
        spanGaps: true,
        points: { show: false },
        paths: uPlot.paths.stepped!({ align: latest.current.x.goal === "max" ? -1 : 1 }),
      },
    ],
    hooks: {
      draw: [
        (self) => paint(self, latest.current, colour),
        (self) => mark(self, latest.current.marks, latest.current.pointed), // its place is another one in another size
      ],
    },
  };
}

/** The ends of a scale, with room for the points at its ends. */
function span(axis: Axis): [number, number] {
  if (axis.kind === "category") return [-0.5, axis.words.length - 0.5];
  if (axis.kind === "log") {
    const margin = (axis.high / axis.low) ** MARGIN;
    return margin > 1 ? [axis.low / margin, axis.high * margin] : [axis.low / 2, axis.high * 2];
  }
  const margin = (axis.high - axis.low) * MARGIN || Math.abs(axis.high) * 0.1 || 1;
  return [axis.low - margin, axis.high + margin];
}

function paint(self: uPlot, { marks, styles }: Props, colour: (name: string) => string): void {
  const byStyle: [number, number][][] = styles.map(() => []);
  marks.x.forEach((at, mark) => {
    const y = marks.y[mark]!;
    if (Number.isNaN(at) || Number.isNaN(y)) return;
    byStyle[marks.styles[mark]!]!.push([self.valToPos(at, "x", true), y === -Infinity ? floor(self) : self.valToPos(y, "y", true)]);
  });
  const scale = uPlot.pxRatio * Math.max(SMALLEST, Math.min(1, Math.sqrt(MANY / marks.x.length)));
  styles.forEach((style, index) => paintMarks(self.ctx, style, colour(style.colour), byStyle[index]!, style.size > LARGE ? uPlot.pxRatio : scale));
}

/** A ring around the mark that is pointed at, here or in another chart. An element: the picture need not be drawn again. */
function mark(self: uPlot | null, { x, y }: Marks, pointed: number): void {
  if (!self) return;
  const ring = self.over.querySelector<HTMLElement>(".sweep-ring") ?? self.over.appendChild(document.createElement("div"));
  ring.className = "sweep-ring";
  const [at, value] = [x[pointed] ?? NaN, y[pointed] ?? NaN];
  ring.hidden = Number.isNaN(at) || Number.isNaN(value);
  if (!ring.hidden) ring.style.transform = `translate(${self.valToPos(at, "x")}px, ${height(self, value)}px)`;
}

function height(self: uPlot, value: number): number {
  return value === -Infinity ? (floor(self) - self.bbox.top) / uPlot.pxRatio : self.valToPos(value, "y");
}

/** Where those without a value stand: at the lower edge. */
function floor(self: uPlot): number {
  return self.bbox.top + self.bbox.height - 6 * uPlot.pxRatio;
}

/** Point at the mark that is nearest to the pointer; the cursor's lines stay where the pointer is. */
function near(self: uPlot, latest: { current: Props }, left: number, top: number): [number, number] {
  const { marks, pointed, point } = latest.current;
  let nearest = -1;
  let distance = NEAR ** 2;
  if (left >= 0) {
    marks.x.forEach((at, mark) => {
      const value = marks.y[mark]!;
      if (Number.isNaN(at) || Number.isNaN(value)) return;
      const far = (self.valToPos(at, "x") - left) ** 2 + (height(self, value) - top) ** 2;
      if (far <= distance) [nearest, distance] = [mark, far];
    });
  }
  if (nearest !== pointed) point(nearest);
  return [left, top];
}

/** The next point to the right or to the left; from none the first one on that side. */
function beside({ x, y }: Marks, pointed: number, step: number): number {
  const drawn = [...x.keys()].filter((mark) => !Number.isNaN(x[mark]!) && !Number.isNaN(y[mark]!));
  drawn.sort((a, b) => x[a]! - x[b]! || y[a]! - y[b]! || a - b);
  const from = drawn.indexOf(pointed);
  const next = from < 0 ? (step > 0 ? 0 : drawn.length - 1) : Math.max(0, Math.min(drawn.length - 1, from + step));
  return drawn[next] ?? -1;
}

function written(_: uPlot, units: number[]): string[] {
  return units.map((unit) => (unit === null ? "" : number(unit)));
}

function short(text: string): string {
  return text.length > 10 ? `${text.slice(0, 9)}…` : text;
}
