// The lines of a log as one long list of which only the pages in sight are read, and whose end grows.
import { batch, signal, type ReadonlySignal } from "@preact/signals";
import { ApiError, get } from "../../../api/client";
import { onEvents } from "../../../api/stream";
import { inWords } from "../../../state/toasts";
import type { LogPage, Stream } from "../shapes";
import { spansOf, type Span } from "./ansi";

const PAGE = 500; // lines
const KEPT = 40; // pages in memory
const EVERY = 1000; // milliseconds between two looks at the end
const SOON = 50; // milliseconds, while the lines are being counted
const TAIL = 200; // lines
const LARGE = 200_000; // characters of a page; of a larger one each line is read for itself, without the colours before it

export interface Which {
  job: number;
  attempt: number;
  stream: Stream;
}

/** A line, and where it stands in its own stream. */
export interface Place {
  stream: Stream;
  number: number; // from 0
  spans: Span[] | undefined; // undefined where it has not been read
}

/** A log as it is shown: one stream, or both together (merged.ts). */
export interface Lines {
  readonly total: ReadonlySignal<number>; // lines that are known of
  readonly isCounted: ReadonlySignal<boolean>; // false: a large log of which only the beginning and the end are known so far
  readonly size: ReadonlySignal<number | null>; // bytes; null before the first answer
  readonly tail: ReadonlySignal<Span[][]>; // the last lines, while their numbers are unknown
  readonly error: ReadonlySignal<string>;
  readonly version: ReadonlySignal<number>; // counts up when lines have changed

  at(place: number): Place;
  /** Where a line of a stream stands in what is shown. */
  placeOf(stream: Stream, number: number): number;
  /** Read what can be seen and is not here yet. */
  show(first: number, last: number): void;
  /** Whether more may come: the attempt runs. After its end it is looked at once more. */
  grows(yes: boolean): void;
  close(): void;
}

interface Page {
  lines: string[];
  spans: (Span[] | undefined)[]; // made when they are displayed
}

export class LogLines implements Lines {
  readonly total = signal(0);
  readonly isCounted = signal(true);
  readonly size = signal<number | null>(null);
  readonly tail = signal<Span[][]>([]);
  readonly error = signal("");
  readonly version = signal(0);

  private readonly pages = new Map<number, Page>();
  private readonly asked = new Set<number>();
  private readonly closing = new AbortController();
  private inSight: [number, number] = [0, 0];
  private isGrowing = true;
  private again = 0;
  private readonly timer: number;
  private readonly stop: () => void;

  constructor(readonly which: Which) {
    this.stop = onEvents((events) => {
      if (events.some((event) => event.job === which.job || event.kind === "events.missed")) this.look();
    });
    this.timer = window.setInterval(() => {
      if (this.isGrowing && !document.hidden) this.look();
    }, EVERY);
    this.look();
  }

  grows(yes: boolean): void {
    if (this.isGrowing && !yes) this.look();
    this.isGrowing = yes;
  }

  at(place: number): Place {
    return { stream: this.which.stream, number: place, spans: this.line(place) };
  }

  placeOf(_: Stream, number: number): number {
    return number;
  }

  show(first: number, last: number): void {
    this.inSight = [Math.floor(first / PAGE), Math.floor(last / PAGE)];
    for (let number = this.inSight[0]; number <= this.inSight[1]; number++) {
      if (!this.isWhole(number) && !this.asked.has(number)) void this.read(number);
    }
  }

  /** Look at the end: is there more? */
  look(): void {
    const last = Math.max(0, Math.floor((this.total.value - 1) / PAGE));
    if (!this.asked.has(last)) void this.read(last);
  }

  close(): void {
    this.closing.abort();
    window.clearInterval(this.timer);
    window.clearTimeout(this.again);
    this.stop();
  }

  private line(place: number): Span[] | undefined {
    const page = this.pages.get(Math.floor(place / PAGE));
    const line = page?.lines[place % PAGE];
    if (!page || line === undefined) return undefined;
    if (!page.spans.length && sizeOf(page.lines) < LARGE) page.spans = spansOf(page.lines);
    return (page.spans[place % PAGE] ??= spansOf([line])[0]);
  }

  private isWhole(number: number): boolean {
    const page = this.pages.get(number);
    return page !== undefined && (page.lines.length >= PAGE || number * PAGE + page.lines.length >= this.total.value);
  }

  private async read(number: number): Promise<void> {
    this.asked.add(number);
    try {
      const lines: string[] = [];
      let found: LogPage;
      do {
        // Of very long lines an answer has fewer than were asked for.
        found = await this.ask(number * PAGE + lines.length, PAGE - lines.length);
        lines.push(...found.lines);
      } while (!found.is_complete && found.lines.length && lines.length < PAGE);
      this.keep(number, lines, found);
      if (found.total === null) await this.readTail();
    } catch (error) {
      if (this.closing.signal.aborted) return;
      this.error.value = inWords(error);
      const status = error instanceof ApiError ? error.status : 0;
      if (status === 410) this.close(); // it was removed
      else if (!status || status >= 500) this.again = window.setTimeout(() => this.look(), EVERY);
    } finally {
      this.asked.delete(number);
    }
  }

  private ask(first: number, count: number): Promise<LogPage> {
    const { job, attempt, stream } = this.which;
    return get<LogPage>(`v1/jobs/${job}/log/lines`, { attempt, stream, first, count }, this.closing.signal);
  }

  private keep(number: number, lines: string[], found: LogPage): void {
    const before = this.pages.get(number)?.lines;
    const isSame = before?.length === lines.length && before.every((line, place) => line === lines[place]);
    if (!isSame) this.pages.set(number, { lines, spans: [] });
    batch(() => {
      this.total.value = found.total ?? Math.max(this.total.value, number * PAGE + lines.length);
      this.isCounted.value = found.total !== null;
      this.size.value = found.size;
      this.error.value = "";
      if (!isSame) this.version.value++;
    });
    this.forgetFarPages();
  }

  /** The end can be seen before the lines are counted, and every look counts further. */
  private async readTail(): Promise<void> {
    const found = await this.ask(-TAIL, TAIL);
    if (found.total === null) this.tail.value = spansOf(found.lines);
    this.again = window.setTimeout(() => this.look(), SOON);
  }

  private forgetFarPages(): void {
    const middle = (this.inSight[0] + this.inSight[1]) / 2;
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - middle) - Math.abs(a - middle));
    for (const number of far.slice(0, Math.max(0, far.length - KEPT))) this.pages.delete(number);
  }
}

function sizeOf(lines: string[]): number {
  return lines.reduce((sum, line) => sum + line.length, 0);
}
