import { useRef, useState } from "preact/hooks";
import { Dialog } from "../../parts/Dialog";
import { focusWrong } from "../../parts/focus";
import { inWords } from "../../state/toasts";
import { Field } from "../submit/Field";
import { readCount, Unreadable } from "../submit/units";
import { changeSweep } from "./acting";
import type { Sweep } from "./shapes";

interface Props {
  sweep: Sweep;
  onClose: () => void;
  refresh: () => void;
}

const MOST = 1_000_000;

/** A finished search goes on from what it has found. */
export function MoreSamples({ sweep, onClose, refresh }: Props) {
  const before = sweep.spec.samples ?? 0;
  const [wrong, setWrong] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    try {
      await changeSweep(sweep, "resume", { samples: readCount(String(data.get("samples")), before + 1, MOST) });
      onClose();
      refresh();
    } catch (error) {
      setWrong(error instanceof Unreadable ? error.message : inWords(error));
      focusWrong(form);
    }
  };
  return (
    <Dialog title="More samples" onClose={onClose}>
      <form ref={form} onSubmit={(event) => void submit(event)}>
        <p>It has had {before.toLocaleString("en")}. The search goes on from what it has found.</p>
        <Field field="samples" label="Samples in all" problem={wrong || undefined}>
          {(attributes) => (
            <input {...attributes} name="samples" inputMode="numeric" autocomplete="off" defaultValue={String(2 * before)} onInput={() => setWrong("")} />
          )}
        </Field>
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="primary">Go on</button>
        </div>
      </form>
    </Dialog>
  );
}
