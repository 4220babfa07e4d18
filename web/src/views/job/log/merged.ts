// Both streams of an attempt as one list. Two files carry no common order: at first one stands behind the other, and
// what they write while the page looks is put in the order in which it came.
import { computed, effect, signal } from "@preact/signals";
import type { Stream } from "../shapes";
import { LogLines, type Lines, type Place, type Which } from "./lines";

/** Lines of one stream that stand together. */
interface Part {
  log: LogLines;
  begin: number; // the place of its first line in the list
  first: number; // that line's number in its stream
  count: number;
}

export class MergedLines implements Lines {
  readonly total = signal(0);
  readonly version = computed(() => this.logs[0].version.value + this.logs[1].version.value + this.changes.value);
  readonly isCounted = computed(() => this.logs.every((log) => log.isCounted.value));
  readonly size = computed(() => {
    const [one, other] = this.logs.map((log) => log.size.value);
    return one == null || other == null ? null : one + other;
  });
  readonly tail = computed(() => this.logs.flatMap((log) => log.tail.value));
  readonly error = computed(() => this.logs.map((log) => log.error.value).find(Boolean) ?? "");
  readonly isMixed = signal(false); // both have lines
  readonly isMarked = signal(false); // its lines say their stream: otherwise stderr alone would look like stdout
  readonly isOrdered = signal(false); // by when they came, as far as the page looked

  private readonly logs: [LogLines, LogLines]; // as they stand at first
  private readonly changes = signal(0);
  private parts: Part[] = [];
  private known = [0, 0]; // lines of each that are in the list
  private readonly stop: () => void;

  /** `last`: the stream that stands behind the other. */
  constructor({ job, attempt }: Omit<Which, "stream">, readonly last: Stream) {
    const log = (stream: Stream) => new LogLines({ job, attempt, stream });
    this.logs = last === "stderr" ? [log("stdout"), log("stderr")] : [log("stderr"), log("stdout")];
    this.stop = effect(() => {
      const totals = this.logs.map((one) => one.total.value);
      if (this.size.value !== null && this.isCounted.value) this.take(totals);
    });
  }

  at(place: number): Place {
    const part = this.parts[this.partOf(place)]!;
    return part.log.at(part.first + place - part.begin);
  }

  placeOf(stream: Stream, number: number): number {
    const own = this.parts.filter((one) => one.log.which.stream === stream);
    const part = own.find((one) => number < one.first + one.count) ?? own.at(-1);
    return part ? part.begin + number - part.first : 0;
  }

  show(first: number, last: number): void {
    for (const log of this.logs) {
      const seen = this.parts.slice(this.partOf(first), this.partOf(last) + 1).filter((one) => one.log === log);
      const [top, bottom] = [seen[0], seen.at(-1)];
      if (top && bottom) {
        log.show(top.first + Math.max(0, first - top.begin), bottom.first + Math.min(bottom.count - 1, last - bottom.begin));
      }
    }
  }

  grows(yes: boolean): void {
    for (const log of this.logs) log.grows(yes);
  }

  close(): void {
    this.stop();
    for (const log of this.logs) log.close();
  }

  /** By halves: whoever looks for a day at two busy streams has thousands of parts. */
  private partOf(place: number): number {
    let [low, high] = [0, this.parts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.parts[middle]!.begin <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Put lines that are new behind all others. A file that has become shorter begins anew. */
  private take(totals: number[]): void {
    if (totals.some((total, place) => total < this.known[place]!)) {
      this.parts = [];
      this.known = [0, 0];
    }
    this.logs.forEach((log, place) => {
      const first = this.known[place]!;
      const count = totals[place]! - first;
      const last = this.parts.at(-1);
      if (!count) return;
      if (last?.log === log) last.count += count;
      else this.parts.push({ log, begin: last ? last.begin + last.count : 0, first, count });
    });
    this.known = totals;
    this.total.value = totals.reduce((sum, total) => sum + total, 0);
    this.isMixed.value = totals.every(Boolean);
    this.isMarked.value = this.logs.some((log, place) => log.which.stream === "stderr" && totals[place]! > 0);
    this.isOrdered.value = this.parts.length > 2;
    this.changes.value = this.changes.peek() + 1;
  }
}
