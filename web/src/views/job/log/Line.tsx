import { to } from "../../../router";
import { mark } from "./mark";
import type { Place, Which } from "./lines";

interface Props {
  which: Omit<Which, "stream">;
  line: Place;
  index: number; // among the rows
  top: number;
  showsStream: boolean;
  query: string;
  isLinked: boolean; // the address means this line
  isCurrent: boolean; // the match that the search stands on
  measure: ((row: HTMLElement | null) => void) | undefined;
}

/** A line of a log and its number in its stream, which is a link to it. */
export function Line({ which, line, index, top, showsStream, query, isLinked, isCurrent, measure }: Props) {
  const { stream, spans } = line;
  const number = line.number + 1;
  const address = { line: number, attempt: which.attempt, stream: stream === "stderr" ? "stderr" : undefined };
  const classes = ["log-line", isLinked && "is-linked", isCurrent && "is-current"].filter(Boolean).join(" ");
  return (
    <div class={classes} style={{ transform: `translateY(${top}px)` }} data-index={index} ref={measure ?? null}>
      <a class="log-number" href={to(`job/${which.job}/log`, address)} tabIndex={-1} aria-label={`line ${number}`}>
        {number}
      </a>
      {showsStream && <span class={`log-stream log-stream-${stream}`}>{stream === "stderr" ? "err" : "out"}</span>}
      <span class={spans ? "log-text" : "log-text log-blank"}>
        {spans &&
          mark(spans, query).map((one, place) =>
            one.isMatch ? (
              <mark key={place} class={one.look}>
                {one.text}
              </mark>
            ) : one.look ? (
              <span key={place} class={one.look}>
                {one.text}
              </span>
            ) : (
              one.text
            ),
          )}
      </span>
    </div>
  );
}
