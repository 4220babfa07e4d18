import { useState } from "preact/hooks";
import { patch } from "../../acts";
import type { Job } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { inWords, say } from "../../state/toasts";
import { Unreadable } from "../submit/units";
import { changes, FIELDS } from "./fields";

interface Props {
  job: Job;
  onClose: () => void;
  refresh: () => void;
}

/** Another command or other wishes, while a job has not started. */
export function Edit({ job, onClose, refresh }: Props) {
  const [wrong, setWrong] = useState("");
  const [before] = useState(job); // as it was when the user began to type
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    try {
      const wanted = changes(before, (name) => String(data.get(name) ?? ""));
      if (Object.keys(wanted).length) {
        await patch(job.id, wanted);
        say(`Job ${job.id} is changed.`);
        refresh();
      }
      onClose();
    } catch (error) {
      setWrong(error instanceof Unreadable ? error.message : inWords(error));
    }
  };
  return (
    <Dialog title={`Edit job ${job.id}`} onClose={onClose}>
      <form class="dialog-form" onSubmit={(event) => void submit(event)}>
        {FIELDS.map((field) => (
          <label key={field.name} class={field.isLong ? "dialog-wide" : undefined}>
            <span>
              {field.label} {field.hint && <span class="faint">{field.hint}</span>}
            </span>
            {field.isLong ? (
              <textarea name={field.name} class="mono" rows={3} spellcheck={false} defaultValue={field.text(before)} />
            ) : (
              <input name={field.name} spellcheck={false} autocomplete="off" defaultValue={field.text(before)} />
            )}
          </label>
        ))}
        {wrong && (
          <p class="error dialog-wide" role="alert">
            {wrong}
          </p>
        )}
        <div class="actions dialog-wide">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="primary">Save</button>
        </div>
      </form>
    </Dialog>
  );
}
