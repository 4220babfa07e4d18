// A job in the words in which it can be asked for again.
import { ASKED_AGAIN } from "../../api/fields";
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
  const wishes = Object.fromEntries(ASKED_AGAIN.map((key) => [key, job[key]])) as NewJob;
  const asked: NewJob = { ...wishes, command: job.command, on: (job.on || "local") as NonNullable<NewJob["on"]> };
  const shell = shellOf(job);
  return shell ? { ...asked, shell } : asked;
}

/** The shell that reads the command, where one does. */
function shellOf(job: WholeJob): string {
  const [program = "", option, line] = job.words;
  return job.words.length === 3 && SHELLS.test(program) && option === "-c" && line === job.command ? program : "";
}
