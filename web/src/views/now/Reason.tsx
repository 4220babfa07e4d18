import { signal } from "@preact/signals";
import type { SharedReason } from "../../api/types";
import { count } from "../../words";
import { Sentence } from "../job/Sentence";
import { withStart } from "../job/story";

const unfolded = signal<ReadonlySet<string>>(new Set()); // by their sentences: the jobs below them come and go

/** Why jobs wait, told once for all of them: one line, and the whole sentence after a click. */
export function Reason({ reason, isPartial }: { reason: SharedReason; isPartial: boolean }) {
  const isOpen = unfolded.value.has(reason.sentence);
  const toggle = () => {
    const next = new Set(unfolded.value);
    if (!next.delete(reason.sentence)) next.add(reason.sentence);
    unfolded.value = next;
  };
  const sentence = withStart(reason.sentence, reason.code === "backend" ? reason.until_at : null);
  return (
    <button class="job-note reason" aria-expanded={isOpen} title={isOpen ? undefined : sentence} onClick={toggle}>
      {reason.jobs.length > 1 && <b>{isPartial ? `${reason.jobs.length} jobs or more` : count(reason.jobs.length, "job")}: </b>}
      <Sentence text={sentence} />
    </button>
  );
}
