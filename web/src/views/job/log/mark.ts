// The places in a line where what was searched for stands.
import type { Span } from "./ansi";

export interface Marked extends Span {
  isMatch: boolean;
}

/** The same text, cut where a match begins or ends. A match may reach over several colours. */
export function mark(spans: readonly Span[], query: string): Marked[] {
  const ranges = query ? matches(spans.map((span) => span.text).join(""), query) : [];
  if (!ranges.length) return spans.map((span) => ({ ...span, isMatch: false }));
  const found: Marked[] = [];
  let begin = 0;
  for (const span of spans) {
    const end = begin + span.text.length;
    let at = begin;
    for (const [first, last] of ranges) {
      if (last <= at || first >= end) continue;
      if (first > at) found.push({ text: span.text.slice(at - begin, first - begin), look: span.look, isMatch: false });
      const until = Math.min(last, end);
      found.push({ text: span.text.slice(Math.max(first, at) - begin, until - begin), look: span.look, isMatch: true });
      at = until;
    }
    if (at < end) found.push({ text: span.text.slice(at - begin), look: span.look, isMatch: false });
    begin = end;
  }
  return found;
}

function matches(text: string, query: string): [number, number][] {
  const found: [number, number][] = [];
  const [where, what] = [text.toLowerCase(), query.toLowerCase()];
  for (let at = where.indexOf(what); at >= 0; at = where.indexOf(what, at + what.length)) found.push([at, at + what.length]);
  return found;
}
