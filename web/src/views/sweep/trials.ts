// The trials of a sweep: read page by page, then kept fresh by what the events tell of each.
import { signal } from "@preact/signals";
import { get } from "../../api/client";
import { onEvents, type Event } from "../../api/stream";
import { inWords } from "../../state/toasts";
import type { Trial, TrialPage } from "./shapes";

export const MOST = 20_000; // trials in memory
const PAGE = 1000;
const AT_MOST = 400; // milliseconds between two looks at what has come
const AGAIN = 3000; // milliseconds after a reading that failed

export class Trials {
  readonly list = signal<readonly Trial[] | null>(null); // by number; null until the first page is here
  readonly error = signal("");
  readonly isPartial = signal(false);

  private readonly known = new Map<number, Trial>();
  private told = new Set<number>(); // what events have said since the reading began is newer than what it finds
  private isReading = false;
  private isOld = false;
  private timer = 0;
  private again = 0;
  private readonly closing = new AbortController();
  private readonly stop: () => void;

  constructor(private readonly sweep: number) {
    this.stop = onEvents((events) => this.hear(events));
    void this.read();
  }

  /** Read them all again: something may have been missed. */
  refresh(): void {
    if (this.isReading) this.isOld = true;
    else void this.read();
  }

  close(): void {
    this.closing.abort();
    window.clearTimeout(this.timer);
    window.clearTimeout(this.again);
    this.stop();
  }

  private hear(events: Event[]): void {
    for (const event of events) {
      if (event.kind === "events.missed") this.refresh();
      if (event.kind !== "sweep.trial" || event["sweep"] !== this.sweep) continue;
      const trial = event["trial"] as Trial;
      this.known.set(trial.number, trial);
      this.told.add(trial.number);
      this.showSoon();
    }
  }

  private async read(): Promise<void> {
    window.clearTimeout(this.again);
    this.isReading = true;
    this.isOld = false;
    this.told = new Set();
    let cursor: string | null = null;
    let count = 0;
    try {
      do {
        const page: TrialPage = await get(`v1/sweeps/${this.sweep}/trials`, { limit: PAGE, cursor }, this.closing.signal);
        for (const trial of page.trials) if (!this.told.has(trial.number)) this.known.set(trial.number, trial);
        cursor = page.cursor;
        count += page.trials.length;
        if (this.list.value === null) this.show();
        else this.showSoon();
      } while (cursor !== null && count < MOST);
      this.isPartial.value = cursor !== null;
      this.error.value = "";
    } catch (error) {
      if (this.closing.signal.aborted) return;
      this.error.value = inWords(error);
      this.again = window.setTimeout(() => this.refresh(), AGAIN);
    }
    this.isReading = false;
    if (this.isOld && !this.closing.signal.aborted) void this.read();
  }

  private showSoon(): void {
    this.timer ||= window.setTimeout(() => this.show(), AT_MOST);
  }

  private show(): void {
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.list.value = [...this.known.values()].sort((a, b) => a.number - b.number);
  }
}
