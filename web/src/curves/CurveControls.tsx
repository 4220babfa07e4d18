import { by, isLog, MOST_SMOOTH, smoothing, type By } from "./lines";

/** How curves are drawn. */
export function CurveControls() {
  return (
    <div class="curve-controls">
      <label>
        by{" "}
        <select aria-label="horizontal axis" value={by.value} onChange={(event) => (by.value = event.currentTarget.value as By)}>
          <option value="step">step</option>
          <option value="time">time</option>
        </select>
      </label>
      <label>
        smooth{" "}
        <input
          type="range"
          aria-label="smoothing"
          min={0}
          max={MOST_SMOOTH}
          step={0.01}
          value={smoothing.value}
          onInput={(event) => (smoothing.value = Number(event.currentTarget.value))}
        />{" "}
        <span class="faint curve-smoothing">{smoothing.value ? smoothing.value.toFixed(2) : "off"}</span>
      </label>
      <label>
        <input type="checkbox" checked={isLog.value} onChange={(event) => (isLog.value = event.currentTarget.checked)} /> log scale
      </label>
    </div>
  );
}
