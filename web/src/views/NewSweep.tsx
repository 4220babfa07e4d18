import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { focusWrong } from "../parts/focus";
import { go } from "../router";
import type { NewJob } from "../state/draft";
import { isReadOnly } from "../state/session";
import { inWords, say } from "../state/toasts";
import "../style/newsweep.css";
import "../style/submit.css";
import { EMPTY, fieldOf, problemsOf, specOf, type ParameterLine, type Problems, type SweepField, type SweepForm } from "./newsweep/form";
import { Parameters } from "./newsweep/Parameters";
import { PreviewLine } from "./newsweep/PreviewLine";
import { Search } from "./newsweep/Search";
import { begin, preview, type Preview } from "./newsweep/sending";
import { Elsewhere } from "./submit/Elsewhere";
import { Environment } from "./submit/Environment";
import { Field } from "./submit/Field";
import { EMPTY as NO_WISHES, fieldOf as wishOf, read, type Field as WishField, type Form as Wishes, type Problems as WishProblems } from "./submit/form";
import { inputsOf } from "./submit/inputs";
import { useLikeness } from "./submit/likeness";
import { More } from "./submit/More";

const FOLDER = "dibs-workdir"; // where the last folder is remembered
const PAUSE = 400; // milliseconds after the last letter
const OF_ONE_JOB = ["name", "output", "begin_at", "hold", "notify", "after"] as const; // a sweep's trials have their own

interface Draft {
  form: SweepForm;
  lines: ParameterLine[];
  wishes: Wishes;
}

let unsent: Draft | null = null; // what was typed before the user went to another view

/** A form for a new sweep, with the rules of the file. What it would try is shown while it is typed. */
export default function NewSweep() {
  const [draft, setDraft] = useState<Draft>(
    () => unsent ?? { form: EMPTY, lines: [{ name: "", values: "" }], wishes: { ...NO_WISHES, workdir: localStorage.getItem(FOLDER) ?? "" } },
  );
  const { form, lines, wishes } = draft;
  const [problems, setProblems] = useState<Problems>({});
  const [wishProblems, setWishProblems] = useState<WishProblems>({});
  const [trouble, setTrouble] = useState("");
  const [found, setFound] = useState<Preview | null>(null);
  const [isBusy, setBusy] = useState(false);
  const element = useRef<HTMLFormElement>(null);
  const [seed] = useState(() => crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1);
  const likeness = useLikeness(wishes.project, null);
  useEffect(() => {
    unsent = draft;
  }, [draft]);
  const isFolderTheirs = useRef(Boolean(wishes.workdir)); // not one that we filled in
  useEffect(() => {
    const workdir = likeness.job?.workdir;
    if (workdir && !isFolderTheirs.current) setDraft((before) => ({ ...before, wishes: { ...before.wishes, workdir } }));
  }, [likeness.job?.id]);

  const { asked, problems: wrongWishes } = read({ ...wishes, commands: form.command, isScript: true }, new Date());
  const body = { like: likeness.like, defaults: ofSweep(asked.defaults), spec: specOf(form, lines, seed) };
  /** What the daemon says no to, at its field. */
  const refuse = (error: unknown) => {
    const field = error instanceof ApiError ? fieldOf(error.field, form) : null;
    setProblems(field ? { [field]: inPage(error) } : {});
    setTrouble(field ? "" : inPage(error));
  };
  const content = JSON.stringify([body.spec, body.like]);
  const isBegun = form.command.trim() !== "" && lines.some((line) => line.values.trim() !== "");
  useEffect(() => {
    if (!isBegun) return setFound(null);
    let isOld = false;
    const timer = window.setTimeout(() => {
      const defaults = Object.keys(wrongWishes).length ? {} : body.defaults;
      preview({ ...body, defaults }).then(
        (one) => {
          if (isOld) return;
          setFound(one);
          setProblems({});
        },
        (error: unknown) => {
          if (isOld) return;
          setFound(null);
          refuse(error);
        },
      );
    }, PAUSE);
    return () => {
      isOld = true;
      window.clearTimeout(timer);
    };
  }, [content, isBegun]);

  const change = (field: SweepField, value: string | boolean) => {
    setDraft((before) => ({ ...before, form: { ...before.form, [field]: value } }));
    setProblems(({ [field]: _, ...others }) => others);
    setTrouble("");
  };
  const changeWish = (field: WishField, value: string | boolean) => {
    if (field === "workdir") isFolderTheirs.current = value !== "";
    setDraft((before) => ({ ...before, wishes: { ...before.wishes, [field]: value } }));
    setWishProblems(({ [field]: _, ...others }) => others);
    setTrouble("");
  };
  const start = async () => {
    if (isBusy) return;
    const { commands, ...wrong } = wrongWishes;
    setWishProblems(wrong);
    const wrongHere = { ...problemsOf(form), ...(commands && { command: commands }) };
    if (Object.keys(wrongHere).length) setProblems(wrongHere);
    if (Object.keys(wrongWishes).length || Object.keys(wrongHere).length) {
      setTrouble("");
      focusWrong(element);
      return;
    }
    setBusy(true);
    try {
      const id = await begin(body);
      localStorage.setItem(FOLDER, wishes.workdir.trim());
      unsent = null;
      say(`Sweep ${id} has begun.`);
      go(`sweeps/${id}`);
    } catch (error) {
      const isLost = error instanceof ApiError && error.status === 0;
      if (isLost) setTrouble("dibs does not answer. Try again in a moment: nothing is begun twice.");
      else {
        refuse(error);
        const wish = error instanceof ApiError && !fieldOf(error.field, form) ? wishOf(error.field) : null;
        if (wish) setWishProblems({ [wish]: inPage(error) });
        focusWrong(element);
      }
    }
    setBusy(false);
  };

  if (isReadOnly.value) return <p class="panel">This page is read-only: it can begin no sweep.</p>;
  const inputs = inputsOf(form, problems, change);
  const wishInputs = inputsOf(wishes, wishProblems, changeWish);
  return (
    <form
      ref={element}
      class="submit"
      noValidate
      aria-label="new sweep"
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <h1>New sweep</h1>
      <section class="panel">
        <Field field="command" label="Command" hint="{lr} stands where the value of lr belongs." problem={problems.command}>
          {(attributes) => (
            <textarea
              {...attributes}
              class="mono"
              rows={2}
              spellcheck={false}
              autocapitalize="off"
              placeholder="python train.py --lr {lr}"
              value={form.command}
              onInput={(event) => change("command", event.currentTarget.value)}
            />
          )}
        </Field>
        <div class="submit-grid">{inputs.text("name", "Name", "Its jobs are named after it.")}</div>
      </section>
      <Parameters
        form={form}
        lines={lines}
        problems={problems}
        change={(next) => {
          setDraft((before) => ({ ...before, lines: next }));
          setProblems({});
        }}
      />
      <Search form={form} inputs={inputs} />
      <div aria-live="polite">
        <PreviewLine found={found} form={form} />
      </div>
      <section class="panel">
        <div class="submit-grid">
          {wishInputs.text("workdir", "Folder", "Where the trials run, from the / on.", { class: "field-wide" })}
          <Environment
            likeness={likeness}
            choose={(like) => {
              isFolderTheirs.current = false;
              likeness.choose(like);
            }}
          />
          {wishInputs.text("gpus", "GPUs", "How many each trial wants; 0 for none.")}
          {wishInputs.text("share", "Share of a GPU", "0.5 or 1/3; empty: all of it.")}
          {wishInputs.text("vram", "GPU memory", "12G, or auto: what similar jobs needed.")}
          {wishInputs.text("time", "Time limit", "Of each trial: 2h, 1h30m, 90s; empty: none.")}
          {wishInputs.text("priority", "Priority", "Higher goes first.")}
          {wishInputs.text("project", "Project", "Projects take turns.")}
        </div>
      </section>
      <Elsewhere inputs={wishInputs} />
      <More inputs={wishInputs} isOpen={false} isSweep />
      <p class="error submit-trouble" role="alert">
        {trouble}
      </p>
      <div class="actions submit-actions">
        <button class="primary" disabled={isBusy}>
          Start the sweep
        </button>
      </div>
    </form>
  );
}

/** What every trial asks for. */
function ofSweep(defaults: NewJob): NewJob {
  const kept = { ...defaults };
  for (const key of OF_ONE_JOB) delete kept[key];
  return kept;
}

/** A refusal without its remedy where that is an option of the command line. */
function inPage(error: unknown): string {
  if (error instanceof ApiError && /(^|\s)--?[a-z]/.test(error.remedy)) return error.message;
  return inWords(error);
}
