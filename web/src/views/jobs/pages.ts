// The jobs of a filter as one long list of which only the pages in sight are read.
import { batch, signal } from "@preact/signals";
import { get } from "../../api/client";
import { onEvents } from "../../api/stream";
import type { Job, JobPage } from "../../api/types";
import { inWords } from "../../state/toasts";
import type { Asked } from "./asked";

const PAGE = 200;
const KEPT = 40; // pages in memory
const MOST_AT_ONCE = 1000; // jobs in one answer
const AT_MOST = 1000; // milliseconds between two looks at what is in sight
const REPORTS_EVERY = 5000; // milliseconds; what a running job reports changes without an event

export class JobPages {
  readonly total = signal<number | null>(null);
  readonly arrived = signal(0); // new jobs that wait above the list: rows do not move under the reader's hand
  readonly counts = signal<JobPage["counts"] | null>(null);
  readonly isPartial = signal(false); // there are too many to sort
  readonly error = signal("");
  readonly nextInSight = signal<number | null>(null); // the place that the list should show next
  readonly version = signal(0); // counts up when rows have changed

  private readonly pages = new Map<number, Job[]>(); // as the daemon counts them: with those that wait above
  private readonly asked = new Set<number>();
  private readonly closing = new AbortController();
  private inSight: [number, number] = [0, 0]; // rows
  private newest: number | null = null; // the first job of the list; null where it is not sorted by number
  private looks = 0; // that began
  private lastTaken = 0; // the look whose answer is shown
  private timer = 0;
  private readonly reports: number;
  private readonly stop: () => void;

  constructor(private readonly wanted: Asked) {
    this.stop = onEvents((events) => {
      if (events.some((event) => event.kind.startsWith("job") || event.kind === "events.missed")) this.refreshSoon();
    });
    this.reports = window.setInterval(() => {
      if (this.isRunningInSight()) this.refreshSoon();
    }, REPORTS_EVERY);
    void this.refresh();
  }

  row(place: number): Job | undefined {
    const there = place + this.arrived.value;
    return this.pages.get(Math.floor(there / PAGE))?.[there % PAGE];
  }

  /** Where a job stands now; null where it is not among those that were read. */
  placeOf(id: number): number | null {
    for (const [page, jobs] of this.pages) {
      const place = jobs.findIndex((job) => job.id === id);
      if (place >= 0) return page * PAGE + place - this.arrived.value;
    }
    return null;
  }

  /** The job at a place, also where it is not in sight. */
  async jobAt(place: number): Promise<Job | undefined> {
    return this.row(place) ?? (await this.ask(place + this.arrived.value, 1)).jobs[0];
  }

  /** All jobs that were read. */
  *read(): Iterable<Job> {
    for (const jobs of this.pages.values()) yield* jobs;
  }

  /** The numbers of the jobs from one place to another, also where they are not in sight. */
  async numbersBetween(one: number, other: number): Promise<number[]> {
    const [first, last] = [Math.min(one, other), Math.max(one, other)];
    const places = Array.from({ length: last - first + 1 }, (_, place) => first + place);
    const known = places.map((place) => this.row(place)?.id);
    if (known.every((id) => id !== undefined)) return known;
    const found: number[] = [];
    for (let begin = first; begin <= last; begin += MOST_AT_ONCE) {
      const some = await this.ask(begin + this.arrived.value, Math.min(MOST_AT_ONCE, last - begin + 1));
      found.push(...some.jobs.map((job) => job.id));
    }
    return found;
  }

  /** How many jobs match at this moment, and the newest of them. */
  async all(): Promise<{ jobs: number; until: number }> {
    const { jobs, total } = await get<JobPage>("v1/jobs", { ...this.wanted, order: "newest", reverse: "", offset: 0, limit: 1 });
    return { jobs: total ?? 0, until: jobs[0]?.id ?? 0 };
  }

  /** Read what can be seen and is not here yet. */
  show(first: number, last: number): void {
    this.inSight = [first, last];
    for (const page of this.pagesInSight(this.arrived.value)) {
      if (!this.pages.has(page) && !this.asked.has(page)) void this.readPage(page);
    }
  }

  /** Put the new jobs on top of the list. */
  showArrived(): void {
    this.newest = null;
    this.inSight = [0, 0];
    void this.refresh();
  }

  /** Read again all that is in sight, and show it at once: a part of it alone would be rows of another moment. */
  async refresh(): Promise<void> {
    const look = ++this.looks;
    try {
      const top = await this.ask(0, PAGE);
      const arrived = this.arrivedSince(top);
      const others = this.pagesInSight(arrived).filter((page) => page !== 0);
      const found = await Promise.all(others.map((page) => this.ask(page * PAGE, PAGE)));
      if (look < this.lastTaken) return; // a later one was answered sooner
      this.lastTaken = look;
      batch(() => {
        this.pages.clear();
        this.pages.set(0, top.jobs);
        others.forEach((page, place) => this.pages.set(page, found[place]!.jobs));
        this.arrived.value = arrived;
        this.took(top);
      });
      this.newest ??= this.wanted.order === "newest" && !this.wanted.reverse ? (top.jobs[0]?.id ?? null) : null;
    } catch (error) {
      if (!this.closing.signal.aborted) this.error.value = inWords(error);
    }
  }

  close(): void {
    this.closing.abort();
    window.clearTimeout(this.timer);
    window.clearInterval(this.reports);
    this.stop();
  }

  /** Whether a job in sight may report something. */
  private isRunningInSight(): boolean {
    const [first, last] = this.inSight;
    for (let place = first; place <= last; place++) if (this.row(place)?.state === "running") return true;
    return false;
  }

  private refreshSoon(): void {
    if (this.timer || document.hidden) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.refresh();
    }, AT_MOST);
  }

  private async readPage(page: number): Promise<void> {
    this.asked.add(page);
    try {
      const found = await this.ask(page * PAGE, PAGE);
      batch(() => {
        this.pages.set(page, found.jobs);
        this.took(found);
      });
      this.forgetFarPages();
    } catch (error) {
      if (!this.closing.signal.aborted) this.error.value = inWords(error);
    } finally {
      this.asked.delete(page);
    }
  }

  private ask(offset: number, limit: number): Promise<JobPage> {
    return get<JobPage>("v1/jobs", { ...this.wanted, offset, limit }, this.closing.signal);
  }

  private took(found: JobPage): void {
    this.total.value = (found.total ?? 0) - this.arrived.value;
    this.counts.value = found.counts;
    this.isPartial.value = found.is_partial;
    this.error.value = "";
    this.version.value++;
  }

  /** How many jobs at the top came after the list was first read. */
  private arrivedSince({ jobs, total }: JobPage): number {
    const { newest } = this;
    if (newest === null) return 0;
    const place = jobs.findIndex((job) => job.id <= newest);
    return place >= 0 ? place : Math.max(jobs.length, (total ?? 0) - (this.total.value ?? 0));
  }

  private pagesInSight(arrived: number): number[] {
    const [first, last] = this.inSight.map((row) => Math.floor((row + arrived) / PAGE)) as [number, number];
    return Array.from({ length: last - first + 1 }, (_, place) => first + place);
  }

  private forgetFarPages(): void {
    const middle = (this.inSight[0] + this.inSight[1]) / 2 / PAGE;
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - middle) - Math.abs(a - middle));
    for (const page of far.slice(0, Math.max(0, far.length - KEPT))) this.pages.delete(page);
  }
}
