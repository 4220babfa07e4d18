import { get } from "../../api/client";
import type { Job, Reason } from "../../api/types";
import { useLive } from "../../state/useLive";
import { withStart } from "../job/story";

interface Answer {
  reason: Reason | null;
  starts_at: string | null;
}

/** Why a job waits, in the same sentence as everywhere. It is asked again now and then: it changes with every start. */
export function Why({ job }: { job: Job }) {
  const why = useLive((signal) => get<Answer>(`v1/jobs/${job.id}/why`, {}, signal), [job.id, job.state], {
    every: 10_000,
    atMost: 3000,
  });
  const { reason, starts_at: start } = why.data.value ?? { reason: null, starts_at: null };
  const sentence = job.why_held || (reason && withStart(reason.sentence, job.state === "submitted" ? start : null));
  return sentence ? <p class="faint job-note">{sentence}</p> : null;
}
