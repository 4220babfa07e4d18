import { to } from "../../../router";
import type { Span } from "./ansi";
import { mark } from "./mark";
import type { Which } from "./lines";

interface Props {
  which: Which;
  place: number; // in the whole log, from 0
  index: number; // among the rows
  top: number;
  spans: Span[] | undefined; // not read yet
  query: string;
  isLinked: boolean; // the address means this line
  isCurrent: boolean; // the match that the search stands on
  measure: ((row: HTMLElement | null) => void) | undefined;
}

/** A line of a log and its number, which is a link to it. */
export function Line({ which, place, index, top, spans, query, isLinked, isCurrent, measure }: Props) {
  const address = { line: place + 1, attempt: which.attempt, stream: which.stream === "stderr" ? "stderr" : undefined };
  const classes = ["log-line", isLinked && "is-linked", isCurrent && "is-current"].filter(Boolean).join(" ");
  return (
    <div class={classes} style={{ transform: `translateY(${top}px)` }} data-index={index} ref={measure ?? null}>
      <a class="log-number" href={to(`job/${which.job}/log`, address)} tabIndex={-1} aria-label={`line ${place + 1}`}>
        {place + 1}
      </a>
      <span class="log-text">
        {spans &&
          mark(spans, query).map((one, number) =>
            one.isMatch ? (
              <mark key={number} class={one.look}>
                {one.text}
              </mark>
            ) : one.look ? (
              <span key={number} class={one.look}>
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
