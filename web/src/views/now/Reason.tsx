import { useState } from "preact/hooks";
import type { SharedReason } from "../../api/types";
import { count } from "../../words";
import { withStart } from "../job/story";

/** Why jobs wait, told once for all of them: one line, and the whole sentence after a click. */
export function Reason({ reason, isPartial }: { reason: SharedReason; isPartial: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const sentence = withStart(reason.sentence, reason.code === "backend" ? reason.until_at : null);
  return (
    <button class="job-note reason" aria-expanded={isOpen} title={isOpen ? undefined : sentence} onClick={() => setOpen(!isOpen)}>
      {reason.jobs.length > 1 && <b>{isPartial ? `${reason.jobs.length} jobs or more` : count(reason.jobs.length, "job")}: </b>}
      {sentence}
    </button>
  );
}
