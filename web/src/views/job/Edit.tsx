import { useRef, useState } from "preact/hooks";
import { patch } from "../../acts";
import { ApiError } from "../../api/client";
import type { Job } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { focusWrong } from "../../parts/focus";
import { inWords, say } from "../../state/toasts";
import { changes, FIELDS, nameOf } from "./fields";

interface Props {
  job: Job;
  onClose: () => void;
  refresh: () => void;
}

/** Another command or other wishes, while a job has not started. */
export function Edit({ job, onClose, refresh }: Props) {
  const [problems, setProblems] = useState<Record<string, string>>({});
  const [refusal, setRefusal] = useState("");
  const [before] = useState(job); // as it was when the user began to type
  const form = useRef<HTMLFormElement>(null);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const { wanted, problems: found } = changes(before, (name) => String(data.get(name) ?? ""));
    setProblems(found);
    setRefusal("");
    if (Object.keys(found).length) return focusWrong(form);
    try {
      if (Object.keys(wanted).length) {
        await patch(job.id, wanted);
        say(`Job ${job.id} is changed.`);
        refresh();
      }
      onClose();
    } catch (error) {
      const name = error instanceof ApiError ? nameOf(error.field) : null;
      setProblems(name ? { [name]: inWords(error) } : {});
      setRefusal(inWords(error));
      focusWrong(form);
    }
  };
  return (
    <Dialog title={`Edit job ${job.id}`} onClose={onClose}>
      <form class="dialog-form" ref={form} onSubmit={(event) => void submit(event)}>
        {FIELDS.map(({ name, label, hint, isLong, choices, text }) => {
          const problem = problems[name];
          const attributes = {
            id: `edit-${name}`,
            name,
            "aria-invalid": problem !== undefined,
            "aria-describedby": `edit-${name}-note`,
            onInput: () => setProblems(({ [name]: _, ...others }) => others),
          };
          return (
            <div key={name} class={isLong ? "field dialog-wide" : "field"}>
              <label for={`edit-${name}`}>{label}</label>
              {choices ? (
                <select {...attributes}>
                  {choices.map(([value, words]) => (
                    <option key={value} value={value} selected={value === text(before)}>
                      {words}
                    </option>
                  ))}
                </select>
              ) : isLong ? (
                <textarea {...attributes} class="mono" spellcheck={false} rows={3} defaultValue={text(before)} />
              ) : (
                <input {...attributes} spellcheck={false} autocomplete="off" defaultValue={text(before)} />
              )}
              <p id={`edit-${name}-note`} class={problem ? "error field-note" : "faint field-note"}>
                {problem ?? hint}
              </p>
            </div>
          );
        })}
        <p class="error dialog-wide" role="alert">
          {refusal}
        </p>
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
