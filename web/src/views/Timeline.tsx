import { signal, useSignalEffect } from "@preact/signals";
import { useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Event } from "../api/stream";
import type { Gpus } from "../api/types";
import { refine, route } from "../router";
import { now } from "../state/clock";
import { useLive } from "../state/useLive";
import "../style/timeline.css";
import { Chart } from "./timeline/Chart";
import { colours, USES, type Meaning } from "./timeline/colours";
import { Controls } from "./timeline/Controls";
import { completeSince, isEnough, rangeFor } from "./timeline/range";
import { GROUPINGS, rowsOf, type CardUses, type Grouping, type Item } from "./timeline/rows";
import { edges, inAddress, sightFrom } from "./timeline/sight";
import { Words } from "./timeline/Words";

interface Found extends CardUses {
  attempts: Item[];
  is_partial: boolean;
}

const NONE: CardUses = { cards: [], until_at: "" };
const MOST = 10_000; // bars in one answer
const EVERY = 20_000; // milliseconds; what others do to a card makes no event
const PAUSE = 250; // milliseconds after the last gesture

const changesBars = (event: Event) => /^job\.(started|suspended|resumed|ended|removed)|^jobs\.removed/.test(event.kind);

/** Who had which GPU when. */
export default function Timeline() {
  const query = route.value.query;
  const by: Grouping = GROUPINGS.find((one) => one === query.get("by")) ?? "gpu";
  const meaning: Meaning = query.get("colour") === "project" ? "project" : "state";
  const sight = useMemo(() => signal(sightFrom(query)), []);
  const [range, setRange] = useState(() => rangeFor(sight.value, now.value));

  const found = useLive(
    (abort) => get<Found>("v1/timeline", { since: moment(range.since), until: range.until && moment(range.until), limit: MOST }, abort),
    [range],
    { concerns: (event) => range.until === null && changesBars(event), every: EVERY, atMost: 2000 },
  );
  const gpus = useLive((abort) => get<Gpus>("v1/gpus", {}, abort), [], { concerns: (event) => event.kind.startsWith("pool") });

  const last = useRef<Found | null>(null); // shown until the next answer is here
  last.current = found.data.value ?? last.current;
  const items = last.current?.attempts;
  const complete = useRef(-Infinity);
  complete.current = useMemo(() => completeSince(items ?? [], last.current?.is_partial ?? false), [items]);
  const timer = useRef(0);
  useSignalEffect(() => {
    const wanted = sight.value;
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      refine(inAddress(wanted));
      if (!isEnough(range, wanted, now.peek(), complete.current)) setRange(rangeFor(wanted, now.peek()));
    }, PAUSE);
    return () => window.clearTimeout(timer.current);
  });

  const cards = (gpus.data.value?.gpus ?? []).filter((gpu) => gpu.slots > 0).map((gpu) => String(gpu.number ?? gpu.index));
  const rows = useMemo(() => rowsOf(items ?? [], by, cards, last.current ?? NONE), [items, by, cards.join()]);
  const { of, legend } = useMemo(() => colours(items ?? [], meaning), [items, meaning]);
  const [first, end] = edges(sight.value, now.value);
  const isWhole = complete.current <= first;
  const isEmpty = items && !rows.some((row) => row.bars.some((bar) => bar.begin < end && bar.end > first));
  return (
    <div class="timeline">
      <h1 class="timeline-title">Timeline</h1>
      <Controls by={by} meaning={meaning} sight={sight} />
      {found.error.value && (
        <p class="error" role="alert">
          {found.error.value}
        </p>
      )}
      {!isWhole && <p class="faint">So much has run that only the latest {MOST.toLocaleString("en")} are shown. A shorter time shows all of it.</p>}
      <ul class="timeline-legend" aria-label={`colours, by ${meaning}`}>
        {legend.map((colour) => (
          <li key={colour.variable + colour.word}>
            <span class="timeline-key" style={{ background: `var(${colour.variable})` }} />
            {colour.word}
          </li>
        ))}
        {items?.some((item) => item.suspended.length) && (
          <li>
            <span class="timeline-key timeline-stripes" />
            suspended
          </li>
        )}
        {Object.values(USES).map((colour) => (
          <li key={colour.word}>
            <span class="timeline-key timeline-ground" style={{ background: `var(${colour.variable})` }} />
            {colour.word}
          </li>
        ))}
      </ul>
      <Chart rows={rows} colour={of} sight={sight} isWhole={isWhole && items !== undefined} />
      {isEmpty && <p class="faint">Nothing ran in this time.</p>}
      <Words rows={rows} sight={sight} isWhole={isWhole} />
    </div>
  );
}

function moment(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
