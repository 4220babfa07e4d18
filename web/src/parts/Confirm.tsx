import { signal } from "@preact/signals";
import { Dialog } from "./Dialog";

interface Question {
  title: string;
  text: string;
  does: string; // on the button: "Kill 3 jobs"
  answer: (yes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Ask before something that cannot be undone. */
export function confirm(title: string, text: string, does: string): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      title,
      text,
      does,
      answer: (yes) => {
        question.value = null;
        resolve(yes);
      },
    };
  });
}

export function ConfirmDialog() {
  const asked = question.value;
  if (!asked) return null;
  return (
    <Dialog title={asked.title} onClose={() => asked.answer(false)}>
      <p>{asked.text}</p>
      <div class="actions">
        <button onClick={() => asked.answer(false)}>Cancel</button>
        <button class="danger" onClick={() => asked.answer(true)}>
          {asked.does}
        </button>
      </div>
    </Dialog>
  );
}
