import { Icon } from "../../parts/Icon";
import { number, type Axis } from "./axes";
import { inWords, withBrush, type Brush, type Brushes } from "./brushes";
import type { Model } from "./model";
import { Parallel } from "./Parallel";

/** The parallel coordinates, what is chosen on them, and the same by typing. */
export function Brushing({ model }: { model: Model }) {
  const axes = model.axes.value;
  const brushes = model.brushes.value;
  const set = (changed: Brushes) => (model.brushes.value = changed);
  const isLogPossible = axes.some((axis) => axis.goal && axis.low > 0);
  return (
    <figure class="panel sweep-figure">
      <figcaption>
        <h2>Parallel coordinates</h2>
        {isLogPossible && (
          <label class="sweep-log">
            <input type="checkbox" checked={model.isLog.value} onChange={(event) => (model.isLog.value = event.currentTarget.checked)} />
            {" metrics on a log scale"}
          </label>
        )}
      </figcaption>
      <Parallel model={model} />
      <div class="sweep-chips" role="group" aria-label="brushes">
        {axes.map((axis) => {
          const brush = brushes.get(axis.key);
          return (
            brush && (
              <button key={axis.key} class="chip" title="clear this brush" onClick={() => set(withBrush(brushes, axis.key, null))}>
                {inWords(axis, brush)} <Icon name="close" />
              </button>
            )
          );
        })}
        {brushes.size === 0 && <span class="faint">Drag along an axis to choose a part of it; a click on it clears it.</span>}
        {brushes.size > 0 && (
          <button class="quiet" onClick={() => set(new Map())}>
            clear all
          </button>
        )}
      </div>
      <details class="sweep-typing">
        <summary>Choose by typing</summary>
        <div>
          {axes.map((axis) => (
            <Typed key={axis.key} axis={axis} brush={brushes.get(axis.key)} change={(brush) => set(withBrush(model.brushes.value, axis.key, brush))} />
          ))}
        </div>
      </details>
    </figure>
  );
}

interface TypedProps {
  axis: Axis;
  brush: Brush | undefined;
  change: (brush: Brush | null) => void;
}

function Typed({ axis, brush, change }: TypedProps) {
  const ends = { low: brush?.low ?? -Infinity, high: brush?.high ?? Infinity };
  const set = (end: "low" | "high", text: string) => {
    const open = end === "low" ? -Infinity : Infinity;
    const value = text.trim() === "" ? open : Number(text);
    const next = { ...ends, [end]: Number.isNaN(value) ? open : value };
    change(next.low === -Infinity && next.high === Infinity ? null : { ...next, hasNone: brush?.hasNone ?? false });
  };
  return (
    <fieldset>
      <legend>{axis.name}</legend>
      {(["low", "high"] as const).map((end) => (
        <label key={end}>
          {end === "low" ? "from" : "to"}{" "}
          {axis.kind === "category" ? (
            <select value={Number.isFinite(ends[end]) ? ends[end] : ""} onChange={(event) => set(end, event.currentTarget.value)}>
              <option value="">any</option>
              {axis.words.map((word, index) => (
                <option key={word} value={index}>
                  {word}
                </option>
              ))}
            </select>
          ) : (
            <input
              size={8}
              inputMode="decimal"
              placeholder={number(axis[end])}
              value={Number.isFinite(ends[end]) ? number(ends[end]) : ""}
              onChange={(event) => set(end, event.currentTarget.value)}
            />
          )}
        </label>
      ))}
      {axis.hasNone && brush && (
        <label>
          <input type="checkbox" checked={brush.hasNone} onChange={(event) => change({ ...brush, hasNone: event.currentTarget.checked })} /> none
        </label>
      )}
    </fieldset>
  );
}
