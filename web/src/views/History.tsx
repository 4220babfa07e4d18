import { get } from "../api/client";
import type { MachinePast, Report } from "../api/types";
import { refine, route } from "../router";
import { useLive } from "../state/useLive";
import "../style/history.css";
import { HeatMap, Legend } from "./history/HeatMap";
import { KINDS, QUANTITIES, type Shown } from "./history/uses";
import { Weeks } from "./history/Weeks";

const SHOWN: Shown[] = ["use", ...QUANTITIES];
const SPANS = ["24h", "7d"] as const;
const EVERY = 60_000; // milliseconds; a step of the picture is five minutes
const REPORT_EVERY = 300_000;
const NONE = () => false; // no event changes it at once

/** What the GPUs of this machine were and used in the last day, week and weeks. */
export default function History() {
  const query = route.value.query;
  const shown = SHOWN.find((one) => one === query.get("show")) ?? "use";
  const span = SPANS.find((one) => one === query.get("span")) ?? "24h";
  const past = useLive((abort) => get<MachinePast>("v1/history", { span }, abort), [span], { concerns: NONE, every: EVERY });
  const report = useLive((abort) => get<Report>("v1/report", {}, abort), [], { concerns: NONE, every: REPORT_EVERY });
  const error = past.error.value || report.error.value;
  return (
    <div class="history">
      <h1 class="history-hidden">History</h1>
      <div class="history-controls">
        <div class="history-group" role="group" aria-label="what is shown">
          {SHOWN.map((one) => (
            <button key={one} class="chip" aria-pressed={one === shown} onClick={() => refine({ show: one === "use" ? "" : one })}>
              {one === "use" ? "Use" : KINDS[one].label}
            </button>
          ))}
        </div>
        <div class="history-group" role="group" aria-label="how much time">
          {SPANS.map((one) => (
            <button key={one} class="chip" aria-pressed={one === span} onClick={() => refine({ span: one === "24h" ? "" : one })}>
              {one.replace(/(\d+)/, "$1 ")}
            </button>
          ))}
        </div>
        {past.data.value && <Legend shown={shown} cards={past.data.value.gpus} />}
      </div>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {past.data.value && (past.data.value.gpus.length ? <HeatMap past={past.data.value} shown={shown} /> : <p class="faint">There is no GPU in the pool.</p>)}
      {report.data.value && <Weeks report={report.data.value} />}
    </div>
  );
}
