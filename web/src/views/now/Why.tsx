import { get } from "../../api/client";
import type { Job, Reason } from "../../api/types";
import { useLive } from "../../state/useLive";

interface Answer {
  reason: Reason | null;
}

/** Why a job waits, in the same sentence as everywhere. It is asked again now and then: it changes with every start. */
export function Why({ job }: { job: Job }) {
  const why = useLive((signal) => get<Answer>(`v1/jobs/${job.id}/why`, {}, signal), [job.id, job.state], {
    every: 10_000,
    atMost: 3000,
  });
  const sentence = job.why_held || why.data.value?.reason?.sentence;
  return sentence ? <p class="faint job-note">{sentence}</p> : null;
}
