import { useState } from "preact/hooks";
import { get, post } from "../../api/client";
import type { Gpu, Gpus } from "../../api/types";
import { inWords, say } from "../../state/toasts";
import { useLive } from "../../state/useLive";
import { count } from "../../words";

const LONGEST_WHY = 255;

/** Several cards out of use at once, with the reason, or used again. */
export function Cards() {
  const gpus = useLive((signal) => get<Gpus>("v1/gpus", {}, signal), [], { every: 5000, atMost: 1000 });
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [why, setWhy] = useState("");
  const [wrong, setWrong] = useState("");
  const cards = gpus.data.value?.gpus.filter((gpu) => gpu.slots > 0) ?? [];
  if (!gpus.data.value || !cards.length) return null;
  const keys = cards.map((gpu) => gpu.key).filter((key) => chosen.has(key));
  const choose = (key: string, isIn: boolean) => {
    setWrong("");
    const next = new Set(chosen);
    if (isIn) next.add(key);
    else next.delete(key);
    setChosen(next);
  };
  const change = async (action: "drain" | "undrain") => {
    if (!keys.length) return setWrong("Choose a card first.");
    try {
      await post("v1/gpus/act", { action, gpus: keys, ...(action === "drain" && why.trim() && { why: why.trim() }) });
      const cardsWord = count(keys.length, "card");
      say(action === "drain" ? `Nothing more starts on ${cardsWord}; what runs goes on.` : `${cardsWord} may be used again.`);
      setChosen(new Set());
      setWhy("");
    } catch (error) {
      setWrong(inWords(error));
    }
    gpus.refresh();
  };
  return (
    <section class="panel" aria-label="GPUs">
      <h2>GPUs</h2>
      <label class="tick">
        <input
          type="checkbox"
          checked={keys.length === cards.length}
          indeterminate={keys.length > 0 && keys.length < cards.length}
          onChange={(event) => setChosen(new Set(event.currentTarget.checked ? cards.map((gpu) => gpu.key) : []))}
        />{" "}
        all of them
      </label>
      <ul class="manage-cards">
        {cards.map((gpu) => (
          <li key={gpu.key}>
            <label class="tick">
              <input type="checkbox" checked={chosen.has(gpu.key)} onChange={(event) => choose(gpu.key, event.currentTarget.checked)} />{" "}
              {nameOf(gpu)}
            </label>
            <span class={`badge gpu-${gpu.state}`}>{gpu.state}</span>
            {gpu.why && <span class="faint">{gpu.why}</span>}
          </li>
        ))}
      </ul>
      <div class="field">
        <label for="drain-why">Reason, for those who look at it</label>
        <input
          id="drain-why"
          maxLength={LONGEST_WHY}
          autocomplete="off"
          value={why}
          aria-invalid={wrong !== ""}
          aria-describedby="drain-note"
          onInput={(event) => setWhy(event.currentTarget.value)}
        />
        <p id="drain-note" class={wrong ? "error field-note" : "faint field-note"}>
          {wrong || "Nothing more starts on a card that is drained; what runs goes on to its end."}
        </p>
      </div>
      <div class="actions">
        <button onClick={() => void change("undrain")}>Use again</button>
        <button class="primary" onClick={() => void change("drain")}>
          Drain
        </button>
      </div>
    </section>
  );
}

function nameOf(gpu: Gpu): string {
  return `GPU ${gpu.number ?? gpu.key}${gpu.name ? ` · ${gpu.name}` : ""}`;
}
