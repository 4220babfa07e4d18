// A job in the words in which it can be asked for again.
import type { WholeJob } from "../../api/types";
import { go } from "../../router";
import { draft, draftFrom, type NewJob } from "../../state/draft";

const SHELLS = /(^|\/)(ba|da|z|k)?sh$/;

/** Take everything that was asked for to the form; a new number, a new place in the queue. */
export function editAndResubmit(job: WholeJob): void {
  draft.value = newJob(job);
  draftFrom.value = job.id;
  go("submit");
}

export function newJob(job: WholeJob): NewJob {
  const asked: NewJob = {
    command: job.command,
    name: job.name,
    project: job.project,
    workdir: job.workdir,
    env: job.env,
    num_gpus: job.num_gpus,
    share: job.share,
    vram: job.vram,
    vram_bytes: job.vram_bytes,
    gpu_type: job.gpu_type,
    cpus: job.cpus,
    mem_bytes: job.mem_bytes,
    only: job.only,
    prefer: job.prefer,
    time_limit_seconds: job.time_limit_seconds,
    grace_seconds: job.grace_seconds,
    priority: job.priority,
    retries: job.retries,
    retry_on: job.retry_on,
    restartable: job.restartable,
    bind: job.bind,
    tags: job.tags,
    output: job.output,
    notify: job.notify as NonNullable<NewJob["notify"]>,
    checkpoint: job.checkpoint,
    on: (job.on || "local") as NonNullable<NewJob["on"]>,
    on_options: job.on_options,
  };
  const shell = shellOf(job);
  return shell ? { ...asked, shell } : asked;
}

/** The shell that reads the command, where one does. */
function shellOf(job: WholeJob): string {
  const [program = "", option, line] = job.words;
  return job.words.length === 3 && SHELLS.test(program) && option === "-c" && line === job.command ? program : "";
}
