import { useEffect, useRef, useState } from "preact/hooks";
import { isPaletteOpen } from "../keys";
import { useLive } from "../state/useLive";
import "../style/palette.css";
import { actions, findJobs, type Choice } from "./choices";
import { Dialog } from "./Dialog";

const PAUSE = 120; // milliseconds after the last letter

/** One field that finds jobs, views and what can be done, for hands that stay on the keyboard. */
export default function Palette() {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [place, setPlace] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const [all] = useState(actions); // of the moment in which it was opened: the focus is here from now on
  const jobs = useLive((signal) => findJobs(asked, signal), [asked], { concerns: () => false });
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(text.trim()), PAUSE);
    return () => window.clearTimeout(timer);
  }, [text]);

  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = all.filter((one) => words.every((word) => one.label.toLowerCase().includes(word)));
  const isAsking = asked !== text.trim() || (jobs.data.value === null && !jobs.error.value);
  const found = isAsking ? [] : (jobs.data.value ?? []);
  // A number is meant for a job; a word may be either, and what can be done is always the same.
  const isNumber = /^\d/.test(text.trim());
  const shown = isNumber ? [...found, ...matching] : [...matching, ...found];
  const current = Math.min(place, shown.length - 1);
  useEffect(() => list.current?.querySelector("[aria-selected='true']")?.scrollIntoView({ block: "nearest" }));

  const isImpatient = useRef(false); // Enter was pressed before the jobs were found
  useEffect(() => {
    if (!isAsking && isImpatient.current) choose(shown[0]);
  });

  const close = () => (isPaletteOpen.value = false);
  const choose = (one: Choice | undefined) => {
    if (!one) return;
    close();
    one.run();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setPlace((current + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === "Enter" && isAsking && (isNumber || !shown.length)) isImpatient.current = true;
    else if (event.key === "Enter") choose(shown[current]);
    else return;
    event.preventDefault();
  };
  const empty = jobs.error.value || (isAsking ? "…" : "Nothing is called so.");
  return (
    <Dialog title="Go to, or do" onClose={close}>
      <input
        class="palette-field"
        role="combobox"
        aria-label="job, view or action"
        aria-expanded={shown.length > 0}
        aria-controls="palette-list"
        aria-activedescendant={shown.length ? `choice-${current}` : undefined}
        placeholder="A job's number or name, a view, an action"
        autofocus
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          isImpatient.current = false;
          setText(event.currentTarget.value);
          setPlace(0);
        }}
        onKeyDown={onKey}
      />
      <ul class="palette" id="palette-list" role="listbox" aria-label="choices" ref={list}>
        {shown.map((one, number) => (
          <li
            key={one.key}
            id={`choice-${number}`}
            role="option"
            aria-selected={number === current}
            class={one.isDanger ? "is-danger" : undefined}
            onClick={() => choose(one)}
            onPointerMove={() => setPlace(number)}
          >
            <span class="palette-label">{one.label}</span>
            {one.hint && <span class="faint">{one.hint}</span>}
          </li>
        ))}
      </ul>
      {!shown.length && <p class="faint">{empty}</p>}
    </Dialog>
  );
}
