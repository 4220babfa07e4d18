import { memo } from "preact/compat";
import { useRef } from "preact/hooks";
import { place, ticks, unitAt, write, type Axis } from "./axes";
import { snapped, type Brush } from "./brushes";
import type { Frame } from "./painter";

const TICK = 26; // pixels between two marks, at least
const STRIP = 36; // pixels in which an axis is taken hold of
const EDGE = 7; // pixels around the end of a brush that move only this end
const CLICK = 3; // pixels: who moves less has clicked
const CATEGORY = 0.3; // of a step, to either side of a category that is chosen

interface Props {
  axis: Axis;
  left: number;
  frame: Frame;
  brush: Brush | undefined;
  change: (key: string, brush: Brush | null) => void;
}

interface Grip {
  from: number; // where the pointer went down, in pixels
  low: number; // the brush at that time
  high: number;
  moves: "low" | "high" | "both";
}

/** An axis with its marks, and the brush on it. While one is dragged the others stay as they are. */
export const AxisLine = memo(function AxisLine({ axis, left, frame, brush, change }: Props) {
  const grip = useRef<Grip | null>(null);
  const height = frame.bottom - frame.top;
  const y = (unit: number) => frame.bottom - place(axis, unit) * height;
  const [lower, upper] = brush ? endsOf(axis, brush, frame) : [0, 0]; // pixels from the top: the lower end is the larger

  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const at = heightOf(event);
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    if (brush && Math.abs(at - lower) < EDGE) grip.current = { from: at, low: lower, high: upper, moves: "low" };
    else if (brush && Math.abs(at - upper) < EDGE) grip.current = { from: at, low: lower, high: upper, moves: "high" };
    else if (brush && at < lower && at > upper) grip.current = { from: at, low: lower, high: upper, moves: "both" };
    else grip.current = { from: at, low: at, high: at, moves: "high" };
  };
  const move = (event: PointerEvent) => {
    const held = grip.current;
    if (!held) return;
    const by = heightOf(event) - held.from;
    if (Math.abs(by) < CLICK) return;
    const ends = [held.low + (held.moves === "high" ? 0 : by), held.high + (held.moves === "low" ? 0 : by)];
    change(axis.key, brushAt(axis, Math.max(...ends), Math.min(...ends), frame));
  };
  const up = (event: PointerEvent) => {
    const held = grip.current;
    grip.current = null;
    if (held && Math.abs(heightOf(event) - held.from) < CLICK && brush) change(axis.key, null);
  };

  const room = frame.step > 90 ? 16 : 11; // letters
  return (
    <g class="sweep-axis">
      <text class="sweep-axis-name" x={left} y={14} text-anchor="middle">
        {axis.name.length > room ? `${axis.name.slice(0, room - 1)}…` : axis.name}
        {axis.goal && (axis.goal === "min" ? " ↓" : " ↑")}
        <title>{axis.goal ? `${axis.name}, to be ${axis.goal === "min" ? "low" : "high"}` : axis.name}</title>
      </text>
      <line x1={left} x2={left} y1={frame.top} y2={frame.bottom} />
      {ticks(axis, height / TICK).map((unit) => (
        <text key={unit} x={left + 6} y={y(unit) + 4}>
          {short(write(axis, unit))}
        </text>
      ))}
      {axis.hasNone && (
        <text x={left + 6} y={frame.none + 4}>
          none
        </text>
      )}
      {axis.hasNone && <circle cx={left} cy={frame.none} r={2.5} />}
      {brush && <rect class="sweep-brush" x={left - 8} width={16} y={upper} height={Math.max(4, lower - upper)} rx={3} />}
      <rect
        class="sweep-strip"
        x={left - STRIP / 2}
        width={STRIP}
        y={0}
        height={frame.height}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={() => (grip.current = null)}
        onDblClick={() => change(axis.key, null)}
      />
    </g>
  );
});

/** From pixels to what is chosen; `low` is the larger one, further down. */
function brushAt(axis: Axis, low: number, high: number, frame: Frame): Brush {
  const part = (at: number) => (frame.bottom - at) / (frame.bottom - frame.top);
  const hasNone = axis.hasNone && low > (frame.bottom + frame.none) / 2;
  if (hasNone && high > (frame.bottom + frame.none) / 2) return { low: Infinity, high: -Infinity, hasNone };
  const inside = (value: number) => unitAt(axis, Math.min(1, Math.max(0, value)));
  return snapped(axis, inside(part(low)), inside(part(high)), hasNone);
}

function endsOf(axis: Axis, { low, high, hasNone }: Brush, frame: Frame): [number, number] {
  const margin = axis.kind === "category" ? CATEGORY : 0;
  const y = (unit: number) => frame.bottom - Math.min(1, Math.max(0, place(axis, unit))) * (frame.bottom - frame.top);
  const step = axis.kind === "category" && axis.words.length > 1 ? (frame.bottom - frame.top) / (axis.words.length - 1) : 20;
  if (low > high) return [frame.none + 8, frame.none - 8];
  const lower = low <= axis.low ? frame.bottom + margin * 20 : y(low) + margin * step;
  const upper = high >= axis.high ? frame.top - margin * 20 : y(high) - margin * step;
  return [hasNone ? frame.none + 8 : lower, upper];
}

/** Pixels from the top of the chart. */
function heightOf(event: PointerEvent): number {
  return event.clientY - (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect().top;
}

function short(text: string): string {
  return text.length > 9 ? `${text.slice(0, 8)}…` : text;
}
