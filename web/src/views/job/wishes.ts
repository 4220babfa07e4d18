// What a job asks for that is not what every job gets.
import type { Job } from "../../api/types";
import { clock, count, duration, size } from "../../words";
import { signalName } from "./story";

const GRACE = 10; // seconds, the default

/** Pairs of a word and what was wished. */
export function wishes(job: Job): [string, string][] {
  const found: [string, string | false | null | undefined][] = [
    ["GPUs", gpus(job)],
    ["only on", job.only.join(", ")],
    ["rather on", job.prefer.join(", ")],
    ["CPUs", job.cpus !== null && String(job.cpus)],
    ["host memory", job.mem_bytes !== null && size(job.mem_bytes)],
    ["time limit", job.time_limit_seconds !== null && duration(job.time_limit_seconds)],
    ["grace", job.grace_seconds !== GRACE && (duration(job.grace_seconds) || "none")],
    ["priority", job.priority !== 0 && String(job.priority)],
    ["urgent", job.urgent && "suspends preemptible jobs if no GPU is free"],
    ["preemptible", job.preemptible == null ? "" : job.preemptible ? "may be suspended for an urgent job" : "is not suspended for an urgent job"],
    ["CUDA IPC", job.no_cuda_ipc && "none"],
    ["retries", job.retries > 0 && `${job.retries}${job.retry_on.length ? ` on ${job.retry_on.join(", ")}` : ""}`],
    ["restartable", job.restartable && "may run again after it was lost"],
    ["bound", job.bind && "to the CPUs near its GPUs"],
    ["warm", job.warm.join(", ")],
    ["image", job.image && [job.image, job.container_engine && `by ${job.container_engine}`].filter(Boolean).join(" ")],
    ["mounts", job.mounts.join(", ")],
    ["image pull", job.image_pull],
    ["begins", job.begin_at !== null && clock(job.begin_at)],
    ["checkpoint", job.checkpoint && `${signalName(job.checkpoint.signal)}, ${duration(job.checkpoint.seconds)} before the limit`],
    ["tags", job.tags.join(", ")],
    ["metrics in", job.metric_patterns.join(", ")],
    ["notify", job.notify],
    ["once", job.once],
    ["output", job.output],
    ["stderr", job.error],
  ];
  return found.filter((pair): pair is [string, string] => Boolean(pair[1]));
}

function gpus(job: Job): string {
  const isOrdinary = job.num_gpus === 1 && !job.share && !job.vram && !job.vram_bytes && !job.gpu_type;
  if (isOrdinary) return "";
  if (!job.num_gpus) return "none";
  const parts = [count(job.num_gpus, "GPU")];
  if (job.share) parts.push(`${job.share} of each`);
  if (job.vram_bytes) parts.push(`${size(job.vram_bytes)} on each`);
  if (job.vram) parts.push(job.vram_bytes ? "until it is known what jobs like it need" : "what jobs like it need on each");
  if (job.gpu_type) parts.push(`of type ${job.gpu_type}`);
  return parts.join(", ");
}
