// Where a text stands in a log. The daemon searches, one stream after the other; the page has the numbers of the lines.
import { signal } from "@preact/signals";
import { get } from "../../../api/client";
import { inWords } from "../../../state/toasts";
import type { LogFound, Stream } from "../shapes";
import type { Which } from "./lines";

const LIMIT = 1000; // lines in one answer
const MOST = 20_000; // lines in memory

/** A line that has the text. */
export interface Found {
  stream: Stream;
  number: number; // from 0
}

export class LogSearch {
  readonly query = signal("");
  readonly lines = signal<readonly Found[]>([]);
  readonly at = signal(-1); // which of them is looked at
  readonly isMore = signal(false); // the rest has not been searched
  readonly isSearching = signal(false);
  readonly error = signal("");

  private stream = 0; // which of them is searched
  private from = 0; // the line from which to go on in it
  private running = new AbortController();

  constructor(
    private readonly which: Omit<Which, "stream">,
    private readonly streams: readonly Stream[],
  ) {}

  /** Begin anew; the first match comes back, or null. */
  async search(query: string): Promise<Found | null> {
    this.stop();
    this.query.value = query;
    this.lines.value = [];
    this.at.value = -1;
    this.stream = 0;
    this.from = 0;
    this.isMore.value = query !== "";
    return query ? this.next() : null;
  }

  /** The match after this one; behind the last comes the first. */
  async next(): Promise<Found | null> {
    return this.step(1, () => this.at.value + 1 >= this.lines.value.length);
  }

  /** The match before this one; before the first comes the last, which may have to be looked for. */
  async previous(): Promise<Found | null> {
    return this.step(-1, () => this.at.value <= 0);
  }

  stop(): void {
    this.running.abort();
    this.running = new AbortController();
    this.isSearching.value = false;
  }

  private async step(by: 1 | -1, needsMore: () => boolean): Promise<Found | null> {
    if (this.isSearching.value) return null;
    const { signal } = this.running;
    while (this.isMore.value && needsMore()) if (!(await this.more(signal))) return null;
    const many = this.lines.value.length;
    if (!many) return null;
    this.at.value = (Math.max(this.at.value, by === 1 ? -1 : 0) + by + many) % many;
    return this.lines.value[this.at.value]!;
  }

  private async more(signal: AbortSignal): Promise<boolean> {
    this.isSearching.value = true;
    try {
      const { job, attempt } = this.which;
      const stream = this.streams[this.stream]!;
      const query = { q: this.query.value, first: this.from, limit: LIMIT, attempt, stream };
      const found = await get<LogFound>(`v1/jobs/${job}/log/search`, query, signal);
      this.lines.value = [...this.lines.value, ...found.matches.map((one) => ({ stream, number: one.line }))];
      this.from = found.next ?? 0;
      if (found.next === null) this.stream++;
      this.isMore.value = this.stream < this.streams.length && this.lines.value.length < MOST;
      this.error.value = "";
      // The end of one stream is no reason to stop: it would look like the end of the search.
      return found.next === null && this.isMore.value ? await this.more(signal) : true;
    } catch (error) {
      if (!signal.aborted) this.error.value = inWords(error);
      return false;
    } finally {
      if (!signal.aborted) this.isSearching.value = false;
    }
  }
}
