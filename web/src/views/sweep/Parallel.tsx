import { useComputed, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useIsDark } from "../../state/useIsDark";
import { place, type Axis } from "./axes";
import { AxisLine } from "./AxisLine";
import { withBrush, type Brush } from "./brushes";
import { Lines } from "./lines";
import type { Model } from "./model";
import type { Frame } from "./painter";
import { SHADES } from "./ranking";
import type { Trial } from "./shapes";

const HEIGHT = 300; // pixels
const LEAST = 76; // pixels between two axes; where that is too wide, the chart scrolls
const SIDE = 44;
const TOP = 30;
const BOTTOM = 14;
const NONE = 30; // pixels below the axes, for what has no value

/** One line for each trial across all axes. A drag along an axis chooses a stretch of it. */
export function Parallel({ model }: { model: Model }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const lines = useRef<Lines | null>(null);
  const [width, setWidth] = useState(0);
  const isDark = useIsDark();
  const axes = model.axes.value;
  const frame = useMemo(() => frameOf(axes, width), [axes, width]);
  const change = useCallback((key: string, brush: Brush | null) => (model.brushes.value = withBrush(model.brushes.value, key, brush)), [model]);

  useLayoutEffect(() => {
    const made = (lines.current = new Lines(canvas.current!));
    const seen = box.current!;
    const watcher = new ResizeObserver(() => setWidth(seen.clientWidth));
    watcher.observe(seen);
    return () => {
      watcher.disconnect();
      made.close();
    };
  }, []);
  useLayoutEffect(() => lines.current!.show({ frame }), [frame.width, frame.height, frame.step, frame.none]);
  useEffect(() => {
    const style = getComputedStyle(canvas.current!);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const shades = Array.from({ length: SHADES }, (_, shade) => colour(`--shade-${shade + 1}`));
    lines.current!.show({ colours: [...shades, colour("--shade-none")], faint: colour("--shade-out") });
  }, [isDark]);
  // The worst first, in the order of their shades; what has not ended yet has no line.
  const drawn = useComputed(() => model.ranking.value.order.filter((index) => model.trials.value[index]!.state !== "open"));
  useSignalEffect(() => {
    const { shades } = model.ranking.value;
    const places = placesOf(model.axes.value, model.trials.value, drawn.value);
    const count = model.axes.value.length;
    lines.current?.show({ count, places, shades: Uint8Array.from(drawn.value, (index) => shades[index]!) });
  });
  useSignalEffect(() => {
    const passes = model.passes.value;
    lines.current?.show({ passes: Uint8Array.from(drawn.value, (index) => passes[index]!) });
  });

  const pointed = model.pointed.value === null ? undefined : model.trials.value.find((one) => one.number === model.pointed.value);
  return (
    <div class="sweep-parallel" ref={box} tabIndex={0} role="region" aria-label="parallel coordinates; the leaderboard has the same in words">
      <div class="sweep-parallel-room" style={{ width: `${frame.width}px`, height: `${frame.height}px` }}>
        <canvas ref={canvas} aria-hidden="true" style={{ width: `${frame.width}px`, height: `${frame.height}px` }} />
        <svg width={frame.width} height={frame.height} aria-hidden="true">
          {pointed && <polyline class="sweep-pointed" points={pointsOf(axes, pointed, frame)} />}
          {axes.map((axis, index) => (
            <AxisLine
              key={axis.key}
              axis={axis}
              left={frame.left + index * frame.step}
              frame={frame}
              brush={model.brushes.value.get(axis.key)}
              change={change}
            />
          ))}
        </svg>
      </div>
    </div>
  );
}

function frameOf(axes: readonly Axis[], width: number): Frame {
  const gaps = Math.max(1, axes.length - 1);
  const wide = Math.max(width, 2 * SIDE + gaps * LEAST);
  const hasNone = axes.some((axis) => axis.hasNone);
  const bottom = HEIGHT - BOTTOM - (hasNone ? NONE : 0);
  return {
    ...{ width: wide, height: HEIGHT, left: SIDE, step: (wide - 2 * SIDE) / gaps },
    ...{ top: TOP, bottom, none: hasNone ? bottom + NONE : bottom, scale: window.devicePixelRatio || 1 },
  };
}

function placesOf(axes: readonly Axis[], trials: readonly Trial[], drawn: readonly number[]): Float32Array {
  const places = new Float32Array(drawn.length * axes.length);
  drawn.forEach((index, line) =>
    axes.forEach((axis, column) => {
      const unit = axis.of(trials[index]!);
      places[line * axes.length + column] = unit === null ? NaN : place(axis, unit);
    }),
  );
  return places;
}

function pointsOf(axes: readonly Axis[], trial: Trial, { left, step, top, bottom, none }: Frame): string {
  const at = axes.map((axis, index) => {
    const unit = axis.of(trial);
    return `${left + index * step},${unit === null ? none : bottom - place(axis, unit) * (bottom - top)}`;
  });
  return at.join(" ");
}
