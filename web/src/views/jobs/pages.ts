// The jobs of a filter as one long list of which only the pages in sight are read.
import { signal } from "@preact/signals";
import { get } from "../../api/client";
import { onEvents } from "../../api/stream";
import type { Job, JobPage } from "../../api/types";
import { inWords } from "../../state/toasts";

export interface Asked {
  state: string;
  project: string;
  user: string;
  text: string;
  order: string;
}

const PAGE = 200;
const KEPT = 40; // pages in memory
const AT_MOST = 1000; // milliseconds between two looks at what is in sight

export class JobPages {
  readonly total = signal<number | null>(null);
  readonly counts = signal<JobPage["counts"] | null>(null);
  readonly error = signal("");
  readonly version = signal(0); // counts up when rows have changed

  private readonly pages = new Map<number, Job[]>();
  private readonly asked = new Set<number>();
  private readonly closing = new AbortController();
  private inSight: [number, number] = [0, 0];
  private timer = 0;
  private readonly stop: () => void;

  constructor(private readonly wanted: Asked) {
    this.stop = onEvents((events) => {
      if (events.some((event) => event.kind.startsWith("job") || event.kind === "events.missed")) this.refreshSoon();
    });
    void this.read(0);
  }

  row(place: number): Job | undefined {
    return this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
  }

  /** Read what can be seen and is not here yet. */
  show(first: number, last: number): void {
    this.inSight = [Math.floor(first / PAGE), Math.floor(last / PAGE)];
    for (let page = this.inSight[0]; page <= this.inSight[1]; page++) {
      if (!this.pages.has(page) && !this.asked.has(page)) void this.read(page);
    }
  }

  refresh(): void {
    const [first, last] = this.inSight;
    for (const page of [...this.pages.keys()]) if (page < first || page > last) this.pages.delete(page);
    for (let page = first; page <= last; page++) void this.read(page);
  }

  close(): void {
    this.closing.abort();
    window.clearTimeout(this.timer);
    this.stop();
  }

  private refreshSoon(): void {
    if (this.timer || document.hidden) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.refresh();
    }, AT_MOST);
  }

  private async read(page: number): Promise<void> {
    this.asked.add(page);
    try {
      const query = { ...this.wanted, offset: page * PAGE, limit: PAGE };
      const found = await get<JobPage>("v1/jobs", query, this.closing.signal);
      this.pages.set(page, found.jobs);
      this.total.value = found.total;
      this.counts.value = found.counts;
      this.error.value = "";
      this.forgetFarPages();
      this.version.value++;
    } catch (error) {
      if (!this.closing.signal.aborted) this.error.value = inWords(error);
    } finally {
      this.asked.delete(page);
    }
  }

  private forgetFarPages(): void {
    const middle = (this.inSight[0] + this.inSight[1]) / 2;
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - middle) - Math.abs(a - middle));
    for (const page of far.slice(0, Math.max(0, far.length - KEPT))) this.pages.delete(page);
  }
}
