import { Dialog } from "../../parts/Dialog";
import { actOnSweep } from "./acting";
import type { Sweep } from "./shapes";

interface Props {
  sweep: Sweep;
  onClose: () => void;
  refresh: () => void;
}

/** A finished search goes on from what it has found. */
export function MoreSamples({ sweep, onClose, refresh }: Props) {
  const before = sweep.spec.samples ?? 0;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    if (await actOnSweep(sweep, "resume", { samples: Number(data.get("samples")) })) {
      onClose();
      refresh();
    }
  };
  return (
    <Dialog title="More samples" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <p>It has had {before.toLocaleString("en")}. The search goes on from what it has found.</p>
        <p>
          <label>
            Samples in all <input name="samples" type="number" min={before + 1} max={1_000_000} value={2 * before} required />
          </label>
        </p>
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
