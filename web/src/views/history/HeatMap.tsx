import { useRef, useState } from "preact/hooks";
import type { CardPast, MachinePast } from "../../api/types";
import { useIsDark } from "../../state/useIsDark";
import { duration } from "../../words";
import { ticks } from "../timeline/ticks";
import { Strip } from "./Strip";
import { KINDS, LOOKS, QUANTITIES, USES, full, partsInWords, secondsOf, summary, type Shown } from "./uses";

interface Props {
  past: MachinePast;
  shown: Shown;
}

interface Cell {
  row: number;
  step: number;
}

const STEPS: Record<string, [number, number]> = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** A row for each card, with its summary in words. Arrow keys or the pointer choose a cell, and the tip tells of it. */
export function HeatMap({ past, shown }: Props) {
  const isDark = useIsDark();
  const box = useRef<HTMLDivElement>(null);
  const [chosen, choose] = useState<Cell | null>(null);
  const cards = past.gpus;
  const steps = cards[0]?.job_seconds.length ?? 0;
  const begin = Date.parse(past.since_at);
  const length = past.step_seconds * 1000;

  const point = (event: PointerEvent) => {
    const place = (event.target as Element).closest<HTMLElement>("[data-row]");
    const strip = place?.querySelector("canvas")?.getBoundingClientRect();
    if (!place || !strip || event.clientX < strip.left || event.clientX >= strip.right) return choose(null);
    choose({ row: Number(place.dataset.row), step: Math.floor((steps * (event.clientX - strip.left)) / strip.width) });
  };
  const move = (event: KeyboardEvent) => {
    const by = STEPS[event.key];
    if (!by && event.key !== "Escape") return;
    event.preventDefault();
    if (!by) return choose(null);
    const from = chosen ?? { row: 0, step: steps };
    choose({ row: limited(from.row + by[0], cards.length), step: limited(from.step + by[1], steps) });
  };

  return (
    <div
      ref={box}
      class="history-map"
      tabIndex={0}
      role="group"
      aria-label="heat map; arrow keys choose a time"
      onKeyDown={move}
      onBlur={() => choose(null)}
      onPointerMove={point}
      onPointerDown={point}
      onPointerLeave={() => choose(null)}
    >
      <table>
        <caption class="history-hidden">
          {shown === "use" ? "Use" : KINDS[shown].label} of each GPU in the last {duration((steps * length) / 1000)}
        </caption>
        <colgroup>
          <col class="history-names" />
          <col />
          <col class="history-words" />
        </colgroup>
        <thead class="history-hidden">
          <tr>
            <th scope="col">GPU</th>
            <th scope="col">picture</th>
            <th scope="col">summary</th>
          </tr>
        </thead>
        <tbody>
          {cards.map((card, row) => (
            <tr key={card.key} data-row={row}>
              <th scope="row">GPU {card.gpu}</th>
              <td class="history-cell">
                <Strip card={card} cards={cards} shown={shown} steps={steps} isDark={isDark} />
                {chosen?.row === row && <span class="history-mark" style={{ left: `${(100 * (chosen.step + 0.5)) / steps}%` }} />}
              </td>
              <td class="history-summary" title={summary(card, shown)}>
                {summary(card, shown)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="history-axis" aria-hidden="true">
        {ticks(begin, begin + steps * length, 760).map(({ at, label, isDay }) => (
          <span key={at} class={isDay ? "history-day" : ""} style={{ left: `${(100 * (at - begin)) / (steps * length)}%` }}>
            {label}
          </span>
        ))}
      </div>
      <p class="history-tip" role="status">
        {chosen ? tip(cards[chosen.row]!, chosen.step, begin + chosen.step * length, length) : <span class="faint">Point at a cell, or use the arrow keys, to see its values.</span>}
      </p>
    </div>
  );
}

function limited(place: number, count: number): number {
  return Math.max(0, Math.min(count - 1, place));
}

function tip(card: CardPast, step: number, at: number, length: number) {
  const levels = QUANTITIES.map((quantity) => {
    const { label, mean, most, text } = KINDS[quantity];
    const value = mean(card)[step];
    return value === null || value === undefined ? "" : `${label.toLowerCase()} ${text(value)} (at most ${text(most(card)[step] ?? value)})`;
  });
  const uses = partsInWords(USES.map((use) => [use, secondsOf(card, use)[step] ?? 0] as const));
  return (
    <>
      <b>
        GPU {card.gpu}, {time.format(at)} to {hour.format(at + length)}
      </b>{" "}
      {[uses, ...levels].filter(Boolean).join(" · ")}
    </>
  );
}

const time = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** What the colours mean. */
export function Legend({ shown, cards }: { shown: Shown; cards: readonly CardPast[] }) {
  if (shown === "use")
    return (
      <ul class="history-legend" aria-label="colours">
        {USES.map((use) => (
          <li key={use}>
            <span class={`history-key ${use === "unknown" ? "history-unknown" : ""}`} style={LOOKS[use].variable ? { background: `var(${LOOKS[use].variable})` } : {}} />
            {LOOKS[use].word}
          </li>
        ))}
      </ul>
    );
  const most = cards.map((card) => full(shown, card, cards));
  const isSame = new Set(most).size === 1;
  return (
    <ul class="history-legend" aria-label="colours">
      <li>
        {KINDS[shown].text(0)} <span class="history-scale" /> {isSame ? KINDS[shown].text(most[0] ?? 0) : "all of the card's"}
      </li>
      <li>
        <span class="history-key history-unknown" />
        unknown
      </li>
    </ul>
  );
}
