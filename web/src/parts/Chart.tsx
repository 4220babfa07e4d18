import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useIsDark } from "../state/useIsDark";
import { duration } from "../words";

interface Props {
  label: string;
  at: number[]; // seconds after the start
  values: (number | null)[];
  write: (value: number) => string;
  most?: number; // at the top of the scale; the highest value, if left out
  isBytes?: boolean; // round numbers are powers of two
}

const HEIGHT = 120;
const LEFT = 56; // pixels for the words at the axes
const BELOW = 26;
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const TOGETHER = "usage"; // the charts of a page point at the same moment

/** One quantity over time. What is under the pointer is said beside the name. */
export default function Chart({ label, at, values, write, most, isBytes = false }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const isDark = useIsDark();

  useEffect(() => {
    const holder = place.current!;
    const made = new uPlot(options(holder, { write, most, isBytes }, setPointed), [at, values], holder);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: holder.clientWidth, height: HEIGHT }));
    observer.observe(holder);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [isDark, most]);
  useEffect(() => plot.current?.setData([at, values]), [at, values]);

  const value = pointed === null ? null : (values[pointed] ?? null);
  const moment = pointed === null ? undefined : at[pointed];
  return (
    <figure class="chart">
      <figcaption>
        {label}
        {moment !== undefined && <span class="faint">{` ${value === null ? "?" : write(value)} at ${duration(moment)}`}</span>}
      </figcaption>
      <div ref={place} role="img" aria-label={`${label} over time`} />
    </figure>
  );
}

interface Scale {
  write: Props["write"];
  most: number | undefined;
  isBytes: boolean;
}

function options(holder: HTMLElement, { write, most, isBytes }: Scale, point: (place: number | null) => void): uPlot.Options {
  const colours = getComputedStyle(document.documentElement);
  const colour = (name: string) => colours.getPropertyValue(name).trim();
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: holder.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, sync: { key: TOGETHER }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: (_, __, highest) => [0, most ?? (highest > 0 ? highest * 1.05 : 1)] } },
    axes: [
      { ...axis, size: BELOW, space: 70, values: (_, ticks) => ticks.map((tick) => (tick ? duration(tick) : "0")) },
      { ...axis, size: LEFT, space: 28, values: (_, ticks) => ticks.map(write), ...(isBytes ? { incrs: POWERS } : {}) },
    ],
    series: [{}, { stroke: colour("--busy"), width: 1.5, fill: colour("--busy-ground"), spanGaps: false, points: { show: false } }],
    hooks: { setCursor: [(self) => point(self.cursor.idx ?? null)] },
  };
}
