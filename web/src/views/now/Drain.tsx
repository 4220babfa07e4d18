import { useState } from "preact/hooks";
import { post } from "../../api/client";
import type { Gpu } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { inWords, say, sayError } from "../../state/toasts";

interface Props {
  gpu: Gpu;
  refresh: () => void;
  isQuiet?: boolean; // a button in a row of many
}

/** Take a card out of use, with the reason, or use it again. */
export function Drain({ gpu, refresh, isQuiet = false }: Props) {
  const [isAsking, setAsking] = useState(false);
  const [wrong, setWrong] = useState("");
  const isOut = gpu.state === "drained" || gpu.state === "quarantined";
  const change = async (why: string) => {
    await post("v1/gpus/act", { action: isOut ? "undrain" : "drain", gpus: [gpu.key], ...(why && { why }) });
    say(isOut ? "It is used again." : "Nothing more starts there; what runs goes on.");
    refresh();
  };
  const ask = () => {
    setWrong("");
    setAsking(true);
  };
  const drain = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    try {
      await change(String(data.get("why") ?? "").trim());
      setAsking(false);
    } catch (error) {
      setWrong(inWords(error)); // the dialog stays, with what was typed
    }
  };
  const name = gpu.number ?? gpu.key;
  return (
    <>
      <button
        class={isQuiet ? "quiet" : undefined}
        aria-label={isQuiet ? (isOut ? `use GPU ${name} again` : `drain GPU ${name}`) : undefined}
        onClick={() => (isOut ? void change("").catch(sayError) : ask())}
      >
        {isOut ? (isQuiet ? "use" : "Use it again") : isQuiet ? "drain" : "Drain"}
      </button>
      {isAsking && (
        <Dialog title={`Drain GPU ${name}?`} onClose={() => setAsking(false)}>
          <p>Nothing more starts there; what runs goes on to its end.</p>
          <form class="dialog-form" onSubmit={(event) => void drain(event)}>
            <label class="dialog-wide">
              <span>Reason, for those who look at it</span>
              <input name="why" maxLength={255} autofocus aria-invalid={wrong !== ""} aria-describedby="drain-wrong" />
            </label>
            <p class="error dialog-wide" id="drain-wrong" role="alert">
              {wrong}
            </p>
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
