// What stands in the form, and what it asks for.
import type { NewJob } from "../../state/draft";
import {
  readArray,
  readBegin,
  readCount,
  readDuration,
  readShare,
  readSize,
  readVariables,
  readWords,
  Unreadable,
  writeDuration,
  writeSize,
} from "./units";

/** Everything as it was typed. */
export interface Form {
  name: string;
  output: string;
  commands: string;
  isScript: boolean; // the whole text is one job
  workdir: string;
  project: string;
  gpus: string;
  share: string;
  vram: string;
  time: string;
  priority: string;
  only: string;
  prefer: string;
  gpuType: string;
  cpus: string;
  mem: string;
  tags: string;
  after: string;
  afterKind: "ok" | "any" | "fail";
  begin: string;
  array: string;
  retries: string;
  retryOn: string;
  grace: string;
  variables: string;
  image: string;
  engine: NonNullable<NewJob["container_engine"]>; // empty: as the settings say
  mounts: string; // one a line
  pull: NonNullable<NewJob["image_pull"]>;
  patterns: string; // one a line
  urgent: boolean;
  preemptible: "" | "yes" | "no"; // empty: as the settings say
  noCudaIpc: boolean;
  restartable: boolean;
  hold: boolean;
  bind: boolean;
  notify: NonNullable<NewJob["notify"]>;
  on: NonNullable<NewJob["on"]>; // empty: where the settings say
  partition: string;
  kept: NewJob; // of a job that is asked for again: what has no field here
}

export type Field = Exclude<keyof Form, "kept">;
export type Problems = Partial<Record<Field, string>>;

export interface Asked {
  defaults: NewJob;
  jobs: NewJob[];
  after: string[]; // references that the daemon has yet to look up
}

export const EMPTY: Form = {
  name: "",
  output: "",
  commands: "",
  isScript: false,
  workdir: "",
  project: "",
  gpus: "1",
  share: "",
  vram: "",
  time: "",
  priority: "0",
  only: "",
  prefer: "",
  gpuType: "",
  cpus: "",
  mem: "",
  tags: "",
  after: "",
  afterKind: "ok",
  begin: "",
  array: "",
  retries: "0",
  retryOn: "",
  grace: "",
  variables: "",
  image: "",
  engine: "",
  mounts: "",
  pull: "",
  patterns: "",
  urgent: false,
  preemptible: "",
  noCudaIpc: false,
  restartable: false,
  hold: false,
  bind: false,
  notify: "",
  on: "",
  partition: "",
  kept: {},
};

export const RARE: Field[] = [
  ...(["only", "prefer", "gpuType", "cpus", "mem", "tags", "after", "begin", "array", "retries", "retryOn"] as const),
  ...(["grace", "variables", "image", "engine", "mounts", "pull", "patterns", "urgent", "preemptible", "noCudaIpc", "restartable", "hold", "bind", "notify"] as const),
];

const MOST_JOBS = 5000; // in one call
const LONGEST_NAME = 255;
const CAUSES = [
  ...["exit-code", "signal", "killed", "time-limit", "start-error", "lost"],
  ...["gpu-oom", "host-oom", "gpu-fault", "import-error", "syntax-error", "port-in-use", "disk-full"],
];

/** One command a line: blank lines and those with a # in front are skipped, a \ at the end joins the next. */
export function commandsOf({ commands, isScript }: Pick<Form, "commands" | "isScript">): string[] {
  if (isScript) return commands.trim() ? [commands] : [];
  return commands
    .replace(/\r/g, "")
    .replace(/\\\n/g, "")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith("#"));
}

/** What the form asks for, or what is wrong with it, field by field. */
export function read(form: Form, now: Date): { asked: Asked; problems: Problems } {
  const problems: Problems = {};
  const at = <T>(field: Field, reads: (text: string) => T, otherwise: T): T => {
    const text = String(form[field]);
    if (!text.trim()) return otherwise;
    try {
      return reads(text);
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      problems[field] = error.message;
      return otherwise;
    }
  };
  const workdir = form.workdir.trim();
  if (!workdir) problems.workdir = "Name the folder in which the command runs.";
  else if (!workdir.startsWith("/")) problems.workdir = "It is a whole path, from the / on.";
  const vram = at("vram", readVram, {});
  const array = at("array", readArray, null);
  const commands = at("commands", () => readCommands(form), []);
  if (!form.commands.trim()) problems.commands = "Write the command to run.";
  if (array && commands.length > 1) problems.array = "An array repeats one command; here are several.";
  const variables = at("variables", readVariables, {});
  const output = form.output.trim();
  const defaults: NewJob = {
    ...form.kept,
    name: at("name", readName, ""),
    project: at("project", readName, ""),
    workdir,
    output: output && !output.startsWith("/") ? `${workdir.replace(/\/$/, "")}/${output}` : output,
    env: variables,
    num_gpus: at("gpus", (text) => readCount(text, 0, 1024), 1),
    share: at("share", readShare, null),
    ...vram,
    gpu_type: at("gpuType", readName, ""),
    only: at("only", readWords, []),
    prefer: at("prefer", readWords, []),
    cpus: at("cpus", (text) => readCount(text, 1, 100_000), null),
    mem_bytes: at("mem", readSize, null),
    time_limit_seconds: at("time", readDuration, null),
    ...(form.grace.trim() ? { grace_seconds: at("grace", readDuration, 10) } : {}),
    priority: at("priority", (text) => readCount(text, -999_999, 999_999), 0),
    retries: at("retries", (text) => readCount(text, 0, 999_999), 0),
    retry_on: at("retryOn", readCauses, []),
    tags: at("tags", readWords, []),
    begin_at: at("begin", (text) => readBegin(text, now), null),
    urgent: form.urgent,
    preemptible: form.preemptible ? form.preemptible === "yes" : null,
    no_cuda_ipc: form.noCudaIpc,
    restartable: form.restartable,
    hold: form.hold,
    bind: form.bind,
    notify: form.notify,
    image: at("image", readName, ""),
    container_engine: form.engine,
    mounts: at("mounts", readMounts, []),
    image_pull: form.pull,
    metric_patterns: at("patterns", readLines, []),
    ...(form.on ? { on: form.on } : {}),
    ...options(form),
  };
  const jobs: NewJob[] = array
    ? array.numbers.map((task) => ({ command: commands[0] ?? "", array: { task, most: array.most } }))
    : commands.map((command) => ({ command }));
  return { asked: { defaults, jobs, after: readWords(form.after) }, problems };
}

const FIELDS: Record<string, Field> = {
  command: "commands",
  num_gpus: "gpus",
  vram_bytes: "vram",
  mem_bytes: "mem",
  gpu_type: "gpuType",
  time_limit_seconds: "time",
  grace_seconds: "grace",
  begin_at: "begin",
  retry_on: "retryOn",
  env: "variables",
  container_engine: "engine",
  image_pull: "pull",
  metric_patterns: "patterns",
  on_options: "partition",
};

/** The field that a refusal of the daemon is about; null where it is none of them. */
export function fieldOf(key: string): Field | null {
  const own = FIELDS[key] ?? key;
  return own in EMPTY && own !== "kept" ? (own as Field) : null;
}

/** The form for a job that is asked for again. */
export function formOf(job: NewJob): Form {
  const { shell, checkpoint, warm } = job;
  const others = Object.entries(job.on_options ?? {}).filter(([name]) => name !== "partition");
  const command = job.command ?? "";
  const begins = job.begin_at ? new Date(job.begin_at) : null;
  return {
    ...EMPTY,
    name: job.name ?? "",
    output: job.output ?? "",
    commands: command,
    isScript: /\n|^\s*(#|<<<|\[\w+=)/.test(command), // as lines it would be something else
    workdir: job.workdir ?? "",
    project: job.project ?? "",
    gpus: String(job.num_gpus ?? 1),
    share: job.share ?? "",
    vram: [job.vram ?? "", job.vram_bytes ? writeSize(job.vram_bytes) : ""].filter(Boolean).join(":"),
    time: job.time_limit_seconds ? writeDuration(job.time_limit_seconds) : "",
    priority: String(job.priority ?? 0),
    only: (job.only ?? []).join(", "),
    prefer: (job.prefer ?? []).join(", "),
    gpuType: job.gpu_type ?? "",
    cpus: job.cpus ? String(job.cpus) : "",
    mem: job.mem_bytes ? writeSize(job.mem_bytes) : "",
    tags: (job.tags ?? []).join(", "),
    after: (job.after ?? []).map((one) => one.job).join(", "),
    afterKind: job.after?.[0]?.kind ?? "ok",
    begin: begins && begins > new Date() ? begins.toISOString().replace(/\.\d+/, "") : "",
    retries: String(job.retries ?? 0),
    retryOn: (job.retry_on ?? []).map((cause) => cause.replace(/ /g, "-")).join(", "),
    grace: job.grace_seconds !== undefined && job.grace_seconds > 0 && job.grace_seconds !== 10 ? writeDuration(job.grace_seconds) : "",
    variables: Object.entries(job.env ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
    urgent: job.urgent ?? false,
    preemptible: job.preemptible == null ? "" : job.preemptible ? "yes" : "no",
    noCudaIpc: job.no_cuda_ipc ?? false,
    restartable: job.restartable ?? false,
    hold: job.hold ?? false,
    bind: job.bind ?? false,
    notify: job.notify ?? "",
    image: job.image ?? "",
    engine: job.container_engine ?? "",
    mounts: (job.mounts ?? []).join("\n"),
    pull: job.image_pull ?? "",
    patterns: (job.metric_patterns ?? []).join("\n"),
    on: job.on === undefined ? "" : job.on || "local",
    partition: job.on_options?.["partition"] ?? "",
    kept: {
      ...(others.length ? { on_options: Object.fromEntries(others) } : {}),
      ...(shell ? { shell } : {}),
      ...(checkpoint ? { checkpoint } : {}),
      ...(warm?.length ? { warm } : {}),
      ...(job.grace_seconds === 0 ? { grace_seconds: 0 } : {}),
    },
  };
}

/** What the cluster is told. */
function options({ kept, partition }: Form): Pick<NewJob, "on_options"> {
  const name = partition.trim();
  return name ? { on_options: { ...kept.on_options, partition: name } } : {};
}

function readCommands(form: Form): string[] {
  const commands = commandsOf(form);
  if (!commands.length) throw new Unreadable("There is no command in it, only blank lines and comments.");
  if (commands.length > MOST_JOBS) {
    throw new Unreadable(`These are ${commands.length.toLocaleString("en")} jobs; longer lists than ${MOST_JOBS.toLocaleString("en")} go through dibs add -f.`);
  }
  if (!form.isScript && commands.some((line) => /^(\[\w+=|<<<)/.test(line))) {
    throw new Unreadable("Wishes in front of a line are for dibs add -f; here they stand in the fields below.");
  }
  return commands;
}

function readName(text: string): string {
  if (text.trim().length > LONGEST_NAME) throw new Unreadable(`It has at most ${LONGEST_NAME} letters.`);
  return text.trim();
}

/** `/data`, `/data:/mnt` or `/data:/mnt:ro`, one a line. */
function readMounts(text: string): string[] {
  const lines = readLines(text);
  const wrong = lines.find((line) => !/^\/[^:]*(:\/[^:]*)?(:r[ow])?$/.test(line));
  if (wrong) throw new Unreadable(`Write ${wrong} like /data, /data:/mnt or /data:/mnt:ro.`);
  return lines;
}

function readLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

/** `12G`, `auto`, or `auto:12G`: so much until more is known. */
function readVram(text: string): Pick<NewJob, "vram" | "vram_bytes"> {
  const [word, size] = text.trim().split(":", 2);
  if (word!.trim().toLowerCase() !== "auto") return { vram_bytes: readSize(text) };
  return size === undefined ? { vram: "auto" } : { vram: "auto", vram_bytes: readSize(size) };
}

function readCauses(text: string): string[] {
  const words = readWords(text.toLowerCase());
  const wrong = words.find((word) => !CAUSES.includes(word));
  if (wrong) throw new Unreadable(`There is no cause ${wrong}; there are ${CAUSES.join(", ")}.`);
  return words;
}
