import type { Span } from "./ansi";

/** The last lines of a log whose lines are not counted yet: they have no numbers. */
export function Tail({ lines }: { lines: Span[][] }) {
  return (
    <div class="log-tail mono">
      {lines.map((spans, place) => (
        <div key={place} class="log-text">
          {spans.map((one, number) => (
            <span key={number} class={one.look}>
              {one.text}
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}
