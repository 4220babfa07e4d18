// Jobs whose end is told to the user, while the page is open: by the browser, or in the page where it allows no such thing.
import { effect, signal } from "@preact/signals";
import { get } from "../api/client";
import { onEvents } from "../api/stream";
import type { Job, JobPage } from "../api/types";
import { to } from "../router";
import { remember, remembered } from "./remembered";
import { isSignedIn } from "./session";
import { say } from "./toasts";

export const MOST_WATCHED = 500;

const KEY = "dibs-watched";
const PAUSE = 500; // milliseconds: jobs that end together are told of together
const ONE_BY_ONE = 3;
const OVER = ["succeeded", "failed", "timed_out", "lost", "cancelled"];

export const watched = signal<ReadonlySet<number>>(new Set(remembered<number[]>(KEY, []).slice(0, MOST_WATCHED)));

effect(() => void remember(KEY, [...watched.value]));

/** Tell the user of these ends. To be called in a click: the browser asks its question only then. */
export async function watch(ids: number[]): Promise<void> {
  const next = new Set([...watched.value, ...ids]);
  if (next.size > MOST_WATCHED) return say(`At most ${MOST_WATCHED} jobs can be told about; choose fewer.`, true);
  watched.value = next;
  const refusal = await asked();
  const they = ids.length === 1 ? "it ends" : "they end";
  if (refusal) say(`This page says it when ${they}, for as long as it is open: ${refusal}.`);
  else say(`The browser tells you when ${they}, for as long as this page is open.`);
  void look(); // one may have ended meanwhile
}

export function unwatch(ids: Iterable<number>): void {
  const next = new Set(watched.value);
  for (const id of ids) next.delete(id);
  watched.value = next;
}

/** Begin to look for ends. */
export function watchEnds(): void {
  let timer = 0;
  const soon = () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void look(), PAUSE);
  };
  onEvents((events) => {
    const isMeant = events.some((event) => event.kind === "events.missed" || (event.job !== null && watched.value.has(event.job)));
    if (isMeant && watched.value.size) soon();
  });
  if (watched.value.size) soon();
}

async function look(): Promise<void> {
  const ids = [...watched.value];
  if (!ids.length || !isSignedIn.value) return;
  try {
    const { jobs } = await get<JobPage>("v1/jobs", { ids: ids.join(), limit: MOST_WATCHED });
    const waiting = new Set(jobs.filter((job) => !OVER.includes(job.state)).map((job) => job.id));
    unwatch(ids.filter((id) => !waiting.has(id))); // also those that were cleaned away
    tell(jobs.filter((job) => !waiting.has(job.id)));
  } catch {
    // The connection is lost: when it is there again, an event says that some were missed.
  }
}

function tell(jobs: Job[]): void {
  if (jobs.length <= ONE_BY_ONE) for (const job of jobs) tellOf(sentence(job), job.state !== "succeeded", [job]);
  else {
    const bad = jobs.filter((job) => job.state !== "succeeded");
    tellOf(`${jobs.length} jobs have ended${bad.length ? `, ${bad.length} of them not well` : ""}.`, bad.length > 0, bad.length ? bad : jobs);
  }
}

/** A sentence, and the jobs that it leads to. */
function tellOf(text: string, isBad: boolean, [first, ...others]: Job[]): void {
  const href = others.length ? to("jobs", { order: "ended" }) : to(`job/${first!.id}`);
  if (whyNot()) return say(text, isBad, [{ label: others.length ? "Jobs" : `job ${first!.id}`, href }], true);
  const shown = new Notification(text, { tag: `dibs-${text}`, icon: "icon.svg" }); // by its tag it is shown once in several tabs
  shown.onclick = () => {
    window.focus();
    location.hash = href;
    shown.close();
  };
}

function sentence(job: Job): string {
  const name = `Job ${job.id}${job.name ? ` (${job.name})` : ""}`;
  if (job.state === "timed_out") return `${name} has reached its time limit.`;
  return `${name} ${job.state === "lost" || job.state === "cancelled" ? "was" : "has"} ${job.state}${job.cause && job.state === "failed" ? `: ${job.cause}` : ""}.`;
}

/** Ask for the permission where that is possible; then why the browser tells nothing, or empty where it does. */
async function asked(): Promise<string> {
  if ("Notification" in window && window.isSecureContext && Notification.permission === "default") await Notification.requestPermission();
  return whyNot();
}

function whyNot(): string {
  if (!window.isSecureContext) return "for notifications browsers want https, or an address of this machine";
  if (!("Notification" in window)) return "this browser has no notifications";
  return Notification.permission === "granted" ? "" : "the browser does not allow it notifications";
}
