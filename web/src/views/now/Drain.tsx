import { useState } from "preact/hooks";
import { post } from "../../api/client";
import type { Gpu } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { say, sayError } from "../../state/toasts";

interface Props {
  gpu: Gpu;
  refresh: () => void;
}

/** Take a card out of use, with the reason, or use it again. */
export function Drain({ gpu, refresh }: Props) {
  const [isAsking, setAsking] = useState(false);
  const isOut = gpu.state === "drained" || gpu.state === "quarantined";
  const change = async (why: string) => {
    setAsking(false);
    try {
      await post("v1/gpus/act", { action: isOut ? "undrain" : "drain", gpus: [gpu.key], ...(why && { why }) });
      say(isOut ? "It is used again." : "Nothing more starts there; what runs goes on.");
      refresh();
    } catch (error) {
      sayError(error);
    }
  };
  const drain = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    void change(String(data.get("why") ?? "").trim());
  };
  return (
    <>
      <button onClick={() => (isOut ? void change("") : setAsking(true))}>{isOut ? "Use it again" : "Drain"}</button>
      {isAsking && (
        <Dialog title={`Drain GPU ${gpu.number ?? gpu.key}?`} onClose={() => setAsking(false)}>
          <p>Nothing more starts there; what runs goes on to its end.</p>
          <form class="dialog-form" onSubmit={drain}>
            <label class="dialog-wide">
              <span>Reason, for those who look at it</span>
              <input name="why" maxLength={255} autofocus />
            </label>
            <div class="actions dialog-wide">
              <button type="button" onClick={() => setAsking(false)}>
                Cancel
              </button>
              <button class="primary">Drain it</button>
            </div>
          </form>
        </Dialog>
      )}
    </>
  );
}
