import { useEffect, useMemo } from "preact/hooks";
import { get } from "../api/client";
import { route } from "../router";
import { useLive } from "../state/useLive";
import "../style/sweep.css";
import { Board } from "./sweep/Board";
import { Brushing } from "./sweep/Brushing";
import { Front } from "./sweep/Front";
import { Head } from "./sweep/Head";
import { History } from "./sweep/History";
import { ImportanceBars } from "./sweep/ImportanceBars";
import { modelOf, type Model } from "./sweep/model";
import { Scatter } from "./sweep/Scatter";
import type { Sweep as SweepObject } from "./sweep/shapes";
import { TrialCurves } from "./sweep/TrialCurves";
import { MOST, Trials } from "./sweep/trials";

const AT_MOST = 1000; // milliseconds between two looks at the whole
const EVERY = 15_000;

/** Everything about one sweep. */
export default function Sweep() {
  const id = Number(route.value.path[1]);
  const found = useLive((signal) => get<SweepObject>(`v1/sweeps/${id}`, {}, signal), [id], {
    concerns: (event) => event.kind.startsWith("sweep.") && event["sweep"] === id,
    every: EVERY,
    atMost: AT_MOST,
  });
  const trials = useMemo(() => new Trials(id), [id]);
  useEffect(() => () => trials.close(), [trials]);
  const model = useMemo(() => modelOf(found.data, trials.list), [found, trials]);

  const sweep = found.data.value;
  const error = found.error.value || trials.error.value;
  if (!sweep) return <p class={error ? "error" : "faint"}>{error || "…"}</p>;
  return (
    <div class="sweep">
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      <Head sweep={sweep} refresh={found.refresh} />
      {trials.isPartial.value && <p class="faint">Only the first {MOST.toLocaleString("en")} trials are shown; `dibs sweep results` has them all.</p>}
      {trials.list.value?.length === 0 && <p class="panel">No trial has begun yet. The first ones stand here as soon as there is room for them.</p>}
      {trials.list.value !== null && trials.list.value.length > 0 && (
        <>
          <Charts model={model} sweep={id} />
          <TrialCurves model={model} />
          <Board model={model} />
        </>
      )}
    </div>
  );
}

function Charts({ model, sweep }: { model: Model; sweep: number }) {
  if (!model.space.value.metrics.length) {
    return (
      <p class="panel">
        No metric was named, so nothing says which trial is better. With <code>--metric val_loss</code> there are charts here, and the best comes first.
      </p>
    );
  }
  if (!model.axes.value.some((axis) => axis.goal)) return <p class="panel">No trial has reported {model.space.value.metrics[0]!.name} yet.</p>;
  return (
    <>
      <Brushing model={model} />
      <div class="sweep-pair">
        <History model={model} />
        <Scatter model={model} />
        <Front model={model} />
        <ImportanceBars sweep={sweep} />
      </div>
    </>
  );
}
