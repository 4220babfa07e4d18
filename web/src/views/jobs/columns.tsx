// What the table can show of a job. The address has the columns by their keys; the CSV has them by the keys of the API.
import type { ComponentChildren } from "preact";
import type { Job } from "../../api/types";
import { ranSeconds } from "../../elapsed";
import { RunBar } from "../../parts/RunBar";
import { StateBadge } from "../../parts/StateBadge";
import { place, placeInWords } from "../../places";
import { now } from "../../state/clock";
import { ago, clock, duration } from "../../words";
import { number } from "../sweep/axes";
import { reasonOf } from "./reasons";

export interface Column {
  key: string;
  label: string;
  least: number; // pixels of its width
  isWide?: boolean; // it takes the room that is left
  order?: string; // how the daemon sorts by it
  isDown?: boolean; // this order begins with the largest
  csv: string[];
  class?: string;
  shows: (job: Job) => ComponentChildren;
  says?: (job: Job) => string; // all of it, where the cell is short
}

export const NUMBER: Column = { key: "id", label: "#", least: 72, order: "newest", isDown: true, csv: ["id"], shows: (job) => job.id };
export const USUAL = ["name", "project", "state", "gpus", "seconds", "when"];

const COLUMNS: Column[] = [
  {
    key: "name",
    label: "name",
    least: 180,
    isWide: true,
    order: "name",
    csv: ["name", "command"],
    class: "job-title",
    shows: (job) => (
      <>
        {job.name ? <b>{job.name}</b> : null} <code>{job.command}</code>
      </>
    ),
    says: (job) => job.command,
  },
  { key: "project", label: "project", least: 110, order: "project", csv: ["project"], shows: (job) => job.project },
  { key: "user", label: "user", least: 90, csv: ["user"], shows: (job) => job.user },
  {
    key: "state",
    label: "state",
    least: 96,
    order: "state",
    csv: ["state"],
    shows: (job) => (
      <>
        <StateBadge state={job.state} isEnding={job.is_ending} />
        <RunBar job={job} />
      </>
    ),
    says: (job) => job.message,
  },
  { key: "priority", label: "priority", least: 76, order: "priority", isDown: true, csv: ["priority"], shows: (job) => job.priority },
  { key: "tags", label: "tags", least: 110, order: "tags", csv: ["tags"], shows: (job) => job.tags.join(" ") },
  {
    key: "why",
    label: "why",
    least: 200,
    order: "cause",
    csv: ["cause", "message", "why_held"],
    shows: (job) => why(job),
  },
  {
    key: "array",
    label: "array task",
    least: 92,
    order: "array",
    csv: ["array"],
    shows: (job) => (job.array ? `${job.array.id}_${job.array.task}` : ""),
  },
  { key: "gpus", label: "GPU", least: 104, order: "gpus", csv: ["gpus"], shows: place, says: placeInWords },
  { key: "attempts", label: "attempts", least: 80, order: "attempts", isDown: true, csv: ["attempts"], shows: (job) => job.attempts || "" },
  { key: "exit_code", label: "exit code", least: 80, order: "exit_code", csv: ["exit_code", "signal"], shows: (job) => job.exit_code },
  moment("queued_at", "added", "queued"),
  moment("started_at", "started", "started"),
  moment("ended_at", "ended", "ended"),
  { key: "seconds", label: "took", least: 84, order: "seconds", isDown: true, csv: ["seconds"], class: "faint job-took", shows: took },
  {
    key: "when",
    label: "when",
    least: 110,
    order: "changed",
    isDown: true,
    csv: ["queued_at", "started_at", "ended_at"],
    shows: (job) => ago(lastMoment(job), now.value),
    says: (job) => clock(lastMoment(job)),
  },
  { key: "workdir", label: "folder", least: 180, csv: ["workdir"], shows: (job) => job.workdir },
  { key: "params", label: "parameters", least: 200, csv: ["params"], shows: (job) => pairs(parametersOf(job)) },
  { key: "metrics", label: "last metrics", least: 200, order: "metrics", csv: ["metrics"], shows: (job) => pairs(job.last_metrics) },
];
const BY_KEY = new Map(COLUMNS.map((column) => [column.key, column]));

/** Every column there is, with one for each parameter and metric of these jobs. */
export function allColumns(jobs: Iterable<Job>): Column[] {
  const more = new Set<string>();
  for (const job of jobs) {
    for (const name of Object.keys(parametersOf(job))) more.add(`param.${name}`);
    for (const name of Object.keys(job.last_metrics)) more.add(`metric.${name}`);
  }
  return [...COLUMNS, ...[...more].sort().map((key) => columnOf(key)!)];
}

/** The columns that an address names; the usual ones where it names none. What it may name besides is left out. */
export function columnsOf(text: string): Column[] {
  const keys = text ? [...new Set(text.split(","))] : USUAL;
  const found = keys.map(columnOf).filter((column) => column !== undefined);
  return found.length ? found : columnsOf("");
}

/** Whether a column sorts by this. */
export function isOrder(text: string): boolean {
  return [NUMBER, ...COLUMNS].some(({ order }) => order === text) || (text.includes(".") && columnOf(text)?.order === text);
}

function columnOf(key: string): Column | undefined {
  const [, kind, name] = /^(param|metric)\.([^\s"'{}=:,;]{1,200})$/.exec(key) ?? [];
  if (!name) return BY_KEY.get(key);
  const shows = kind === "param" ? (job: Job) => word(parametersOf(job)[name]) : (job: Job) => word(job.last_metrics[name]);
  return { key, label: name, least: 96, order: key, csv: [key], class: "job-figure", shows };
}

/** Where the trial of a sweep is tried. */
function parametersOf(job: Job): Record<string, string | null> {
  return job.sweep?.point ?? {};
}

function pairs(values: Record<string, string | number | null>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${word(value)}`)
    .join(" ");
}

function word(value: string | number | null | undefined): string {
  if (value === undefined) return "";
  return value === null ? "none" : typeof value === "number" ? number(value) : value;
}

function moment(key: "queued_at" | "started_at" | "ended_at", label: string, order: string): Column {
  const says = (job: Job) => clock(job[key]);
  return { key, label, least: 192, order, isDown: true, csv: [key], shows: says };
}

function lastMoment(job: Job): string {
  return job.ended_at ?? job.started_at ?? job.queued_at;
}

/** Why it waits, or why it failed. */
function why(job: Job): string {
  if (job.state === "held") return job.why_held;
  if (job.cause) return job.message ? `${job.cause}: ${job.message}` : job.cause;
  return reasonOf(job);
}

function took(job: Job): string {
  return duration(ranSeconds(job, now.value));
}
