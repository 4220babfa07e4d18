// The fields of the form that changes a job before it starts, and what their text means.
import type { Job } from "../../api/types";
import type { NewJob } from "../../state/draft";
import { PREEMPTIBLE } from "../submit/preemptible";
import { readCount, readDuration, readShare, readSize, readWords, Unreadable, writeDuration, writeSize } from "../submit/units";

export interface Field {
  name: string;
  label: string;
  hint: string;
  isLong?: boolean; // a command has several lines
  choices?: [text: string, words: string][]; // there is no other text
  text: (job: Job) => string;
  read: (text: string) => NewJob; // never of an empty text
  none: NewJob | null; // what an empty text means; null: it must not be empty
}

const MOST = 999_999;

/** Bytes on each card, `auto`, or both: `auto:12G`. */
function readVram(text: string): NewJob {
  const [word = "", bytes] = text.split(":", 2);
  if (word.trim().toLowerCase() !== "auto") return { vram: null, vram_bytes: readSize(text) };
  return { vram: "auto", vram_bytes: bytes === undefined ? null : readSize(bytes) };
}

function writeVram(job: Job): string {
  return [job.vram, job.vram_bytes && writeSize(job.vram_bytes)].filter(Boolean).join(":");
}

export const FIELDS: Field[] = [
  { name: "command", label: "Command", hint: "", isLong: true, text: (job) => job.command, read: (command) => ({ command }), none: null },
  { name: "name", label: "Name", hint: "", text: (job) => job.name, read: (name) => ({ name }), none: { name: "" } },
  {
    name: "priority",
    label: "Priority",
    hint: "higher ones come first",
    text: (job) => String(job.priority),
    read: (text) => ({ priority: readCount(text, -MOST, MOST) }),
    none: { priority: 0 },
  },
  {
    name: "num_gpus",
    label: "GPUs",
    hint: "0 for none",
    text: (job) => String(job.num_gpus),
    read: (text) => ({ num_gpus: readCount(text, 0, 1024) }),
    none: { num_gpus: 1 },
  },
  {
    name: "share",
    label: "Share of each GPU",
    hint: "0.5 or 1/3",
    text: (job) => job.share ?? "",
    read: (text) => ({ share: readShare(text) }),
    none: { share: null },
  },
  { name: "vram", label: "GPU memory on each", hint: "12G or auto", text: writeVram, read: readVram, none: { vram: null, vram_bytes: null } },
  {
    name: "gpu_type",
    label: "GPU type",
    hint: "a part of the card's name",
    text: (job) => job.gpu_type,
    read: (gpu_type) => ({ gpu_type }),
    none: { gpu_type: "" },
  },
  {
    name: "only",
    label: "Only on GPUs",
    hint: "0,1",
    text: (job) => job.only.join(","),
    read: (text) => ({ only: readWords(text) }),
    none: { only: [] },
  },
  {
    name: "cpus",
    label: "CPUs",
    hint: "",
    text: (job) => String(job.cpus ?? ""),
    read: (text) => ({ cpus: readCount(text, 1, 100_000) }),
    none: { cpus: null },
  },
  {
    name: "mem",
    label: "Host memory",
    hint: "32G",
    text: (job) => (job.mem_bytes === null ? "" : writeSize(job.mem_bytes)),
    read: (text) => ({ mem_bytes: readSize(text) }),
    none: { mem_bytes: null },
  },
  {
    name: "time",
    label: "Time limit",
    hint: "2h, 1h30m, 90s",
    text: (job) => (job.time_limit_seconds === null ? "" : writeDuration(job.time_limit_seconds)),
    read: (text) => ({ time_limit_seconds: readDuration(text) }),
    none: { time_limit_seconds: null },
  },
  {
    name: "retries",
    label: "Retries",
    hint: "",
    text: (job) => String(job.retries),
    read: (text) => ({ retries: readCount(text, 0, MOST) }),
    none: { retries: 0 },
  },
  {
    name: "urgent",
    label: "If no GPU is free",
    hint: "",
    choices: [
      ["", "it waits"],
      ["yes", "preemptible jobs are suspended"],
    ],
    text: (job) => (job.urgent ? "yes" : ""),
    read: () => ({ urgent: true }),
    none: { urgent: false },
  },
  {
    name: "preemptible",
    label: PREEMPTIBLE.label,
    hint: "",
    choices: PREEMPTIBLE.choices,
    text: (job) => (job.preemptible === null ? "" : job.preemptible ? "yes" : "no"),
    read: (text) => ({ preemptible: text === "yes" }),
    none: { preemptible: null },
  },
];

/** The changes: only fields that the user edited; and what is wrong with them, by the names of the fields. */
export function changes(job: Job, texts: (name: string) => string): { wanted: NewJob; problems: Record<string, string> } {
  let wanted: NewJob = {};
  const problems: Record<string, string> = {};
  for (const { name, text, read, none } of FIELDS) {
    const written = texts(name).trim();
    if (written === text(job).trim()) continue;
    if (!written && none === null) problems[name] = "A job needs one.";
    try {
      wanted = { ...wanted, ...(written ? read(written) : none) };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      problems[name] = error.message;
    }
  }
  return { wanted, problems };
}

/** The field that a refusal of the daemon is about; null where it is none of them. */
export function nameOf(key: string): string | null {
  const name = key.replace(/_(bytes|seconds)$/, "").replace(/^time_limit$/, "time");
  return FIELDS.some((field) => field.name === name) ? name : null;
}
