import { useState } from "preact/hooks";
import { sayError } from "../state/toasts";
import { Icon } from "./Icon";

const SHOWN = 1500; // milliseconds

export function Copy({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), SHOWN);
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <button class="quiet" aria-label={label} title={label} onClick={() => void copy()}>
      {isCopied ? "copied" : <Icon name="copy" />}
    </button>
  );
}
