import type { Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { addKeys } from "../../keys";
import { go } from "../../router";
import { now } from "../../state/clock";
import { theme } from "../../state/theme";
import type { Colour } from "./colours";
import { useGestures } from "./gestures";
import { AXIS, barAt, paint, x, type Scene } from "./paint";
import { Palette } from "./palette";
import type { Bar, Item, Row } from "./rows";
import { edges, moved, zoomedHere, type Sight } from "./sight";
import { Tip } from "./Tip";

interface Props {
  rows: Row[];
  colour: (item: Item) => Colour;
  sight: Signal<Sight>;
  isWhole: boolean;
}

interface Pointed {
  bar: Bar;
  left: number;
  top: number;
}

const NARROW = 520; // pixels

/** The rows of bars. A picture: the same is told in words by the table below it. */
export function Chart({ rows, colour, sight, isWhole }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, setBox] = useState({ width: 0, height: 0 });
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const palette = useRef<Palette | null>(null);
  const frame = useRef(0);

  const scene = (): Scene => {
    const [first, last] = edges(sight.value, now.value);
    const labels = box.width < NARROW ? 88 : 132;
    const top = scroller.current?.scrollTop ?? 0;
    return { rows, colour, first, last, now: now.value, top, ...box, labels, isWhole, chosen: pointed?.bar ?? null };
  };
  const current = useRef(scene);
  current.current = scene;
  const repaint = () => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      const context = canvas.current?.getContext("2d");
      if (!context || !canvas.current) return;
      palette.current ??= new Palette(canvas.current);
      const scale = canvas.current.width / Math.max(1, canvas.current.clientWidth);
      context.setTransform(scale, 0, 0, scale, 0, 0);
      paint(context, current.current(), palette.current);
    });
  };

  useLayoutEffect(() => {
    const seen = scroller.current!;
    const watcher = new ResizeObserver(() => setBox({ width: seen.clientWidth, height: seen.clientHeight }));
    watcher.observe(seen);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    const scale = window.devicePixelRatio || 1;
    canvas.current!.width = Math.round(box.width * scale);
    canvas.current!.height = Math.round(box.height * scale);
  }, [box]);
  useEffect(() => {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const forget = () => {
      palette.current = null;
      repaint();
    };
    forget();
    dark.addEventListener("change", forget);
    return () => dark.removeEventListener("change", forget);
  }, [theme.value]);
  useEffect(repaint);

  const choose = (bar: Bar | null, left: number, top: number) => {
    setPointed((before) => (bar ? { bar, left, top } : before && null));
  };
  const step = (by: number) => {
    const shown = current.current();
    const all = shown.rows.flatMap((row) => row.bars).filter((bar) => bar.end > shown.first && bar.begin < shown.last);
    if (!all.length) return;
    const place = all.findIndex((bar) => bar === shown.chosen);
    const bar = all[place < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, place + by))]!;
    const row = shown.rows.find((one) => one.bars.includes(bar))!;
    if (row.top < shown.top || row.top + row.height > shown.top + shown.height - AXIS) scroller.current!.scrollTop = row.top;
    const top = AXIS + row.top + row.height / 2 - scroller.current!.scrollTop;
    choose(bar, Math.min(shown.width - 10, Math.max(shown.labels, x(shown, bar.begin))), top);
  };
  useEffect(() => {
    const zoom = (factor: number) => (sight.value = zoomedHere(sight.value, factor, now.value));
    const move = (part: number) => (sight.value = moved(sight.value, part * sight.value.span, now.value));
    const open = () => {
      const job = current.current().chosen?.item.job;
      if (job !== undefined) go(`job/${job}`);
    };
    return addKeys([
      { keys: "+", does: "see a shorter time", run: () => zoom(0.5) },
      { keys: "-", does: "see a longer time", run: () => zoom(2) },
      { keys: "ArrowLeft", does: "go back in time", run: () => move(-0.25) },
      { keys: "ArrowRight", does: "go on in time", run: () => move(0.25) },
      { keys: "0", does: "go to now", run: () => (sight.value = { ...sight.value, end: null }) },
      { keys: "j", does: "next bar", run: () => step(1) },
      { keys: "k", does: "previous bar", run: () => step(-1) },
      { keys: "Enter", does: "open the bar's job", run: open },
    ]);
  }, [sight]);
  useGestures(scroller, sight, () => current.current(), {
    point: (left, top) => choose(barAt(current.current(), left, top), left, top),
    click: (left, top) => {
      const bar = barAt(current.current(), left, top);
      if (bar) go(`job/${bar.item.job}`);
    },
    leave: () => setPointed(null),
  });

  const lastRow = rows[rows.length - 1];
  const height = AXIS + (lastRow ? lastRow.top + lastRow.height : 0);
  return (
    <div class="timeline-box">
      <div
        ref={scroller}
        class="timeline-chart"
        tabIndex={0}
        role="region"
        aria-label="timeline; the same in words stands below it"
        onScroll={repaint}
        style={{ height: `${height + 2}px` }}
      >
        <div class="timeline-room" style={{ height: `${height}px` }}>
          <canvas ref={canvas} class="timeline-canvas" aria-hidden="true" style={{ width: `${box.width}px`, height: `${box.height}px` }} />
        </div>
      </div>
      {pointed && <Tip item={pointed.bar.item} left={pointed.left} top={pointed.top} {...box} />}
    </div>
  );
}
