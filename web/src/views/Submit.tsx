import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "../api/client";
import { to } from "../router";
import { focusWrong } from "../parts/focus";
import { draft, draftFrom } from "../state/draft";
import { isReadOnly } from "../state/session";
import { inWords, say, type Link } from "../state/toasts";
import { useLive } from "../state/useLive";
import "../style/submit.css";
import { count } from "../words";
import { Commands } from "./submit/Commands";
import { Elsewhere } from "./submit/Elsewhere";
import { Environment } from "./submit/Environment";
import { idOf } from "./submit/Field";
import { EMPTY, fieldOf, formOf, RARE, read, type Asked, type Field, type Form, type Problems } from "./submit/form";
import { inputsOf } from "./submit/inputs";
import { useLikeness } from "./submit/likeness";
import { More } from "./submit/More";
import { Prospects } from "./submit/Prospects";
import { add, check, type Added, type Prospect } from "./submit/sending";

const FOLDER = "dibs-workdir"; // where the last folder is remembered
const LINKED = 5; // jobs

interface Projects {
  projects: { name: string }[];
}

interface Draft {
  form: Form;
  from: number | null; // the job that it is like
}

let unsent: Draft | null = null; // what was typed before the user went to another view

/** A form for new jobs. What it was filled in with elsewhere ("edit and resubmit") stands in it. */
export default function Submit() {
  const [began] = useState<Draft>(() => {
    if (draft.value) return { form: formOf(draft.value), from: draftFrom.value };
    return unsent ?? { form: { ...EMPTY, workdir: localStorage.getItem(FOLDER) ?? "" }, from: null };
  });
  const [form, setForm] = useState(began.form);
  const [problems, setProblems] = useState<Problems>({});
  const [trouble, setTrouble] = useState("");
  const [prospects, setProspects] = useState<Prospect[] | null>(null);
  const [added, setAdded] = useState<Added | null>(null);
  const [isBusy, setBusy] = useState(false);
  const element = useRef<HTMLFormElement>(null);
  const isFolderTheirs = useRef(Boolean(form.workdir)); // not one that we filled in
  const isMoreOpen = useRef(false); // once open it stays so: it must not close under the hands of who empties a field
  const likeness = useLikeness(form.project, began.from);
  const projects = useLive((signal) => get<Projects>("v1/projects", {}, signal), [], { concerns: () => false });

  useEffect(() => {
    draft.value = null;
    draftFrom.value = null;
  }, []);
  useEffect(() => {
    unsent = { form, from: began.from };
  }, [form]);
  /** The folder of the job that new ones are like, unless the user wrote another one or is about to. */
  const fillInFolder = () => {
    const folder = likeness.job?.workdir;
    const isTheirs = isFolderTheirs.current || document.activeElement?.id === idOf("workdir");
    if (folder && !isTheirs) setForm((before) => ({ ...before, workdir: folder }));
  };
  useEffect(fillInFolder, [likeness.job?.id]);

  const change = (field: Field, value: string | boolean) => {
    if (field === "workdir") isFolderTheirs.current = value !== "";
    setForm((before) => ({ ...before, [field]: value }));
    setProblems(({ [field]: _, ...others }) => others);
    setProspects(null);
    setTrouble("");
  };
  /** Read the form and do something with it; what is wrong is said at its field, and the first such has the focus. */
  const run = async (act: (asked: Asked) => Promise<void>) => {
    if (isBusy) return;
    const { asked, problems: found } = read(form, new Date());
    setProblems(found);
    setTrouble("");
    const wrong = Object.keys(found) as Field[];
    if (wrong.length) {
      setTrouble(troubleWith(form, found));
      focusWrong(element);
      return;
    }
    setBusy(true);
    try {
      await act(asked);
    } catch (error) {
      const isLost = error instanceof ApiError && error.status === 0;
      setTrouble(isLost ? "dibs does not answer. Try again in a moment: nothing is added twice." : inWords(error));
      const field = error instanceof ApiError ? fieldOf(error.field) : null;
      if (field) {
        setProblems({ [field]: inWords(error) });
        focusWrong(element);
      }
    }
    setBusy(false);
  };
  const tryOut = () =>
    run(async (asked) => {
      setProspects(await check(form, asked, likeness.like));
    });
  const submit = () =>
    run(async (asked) => {
      const numbers = await add(form, asked, likeness.like);
      localStorage.setItem(FOLDER, form.workdir.trim());
      setAdded(numbers);
      setProspects(null);
      setForm((before) => ({ ...before, commands: "", name: "" }));
      say(wordsFor(numbers), false, linksTo(numbers));
      for (const note of numbers.notes) say(note);
    });

  if (isReadOnly.value) return <p class="panel">This page is read-only: it can add no jobs.</p>;
  const inputs = inputsOf(form, problems, change);
  isMoreOpen.current ||= RARE.some((field) => form[field] !== EMPTY[field] || problems[field]);
  return (
    <form
      ref={element}
      class="submit"
      noValidate
      aria-label="new jobs"
      onFocusOut={(event) => {
        if ((event.target as HTMLElement).id === idOf("workdir")) fillInFolder();
      }}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <h1>{began.from === null ? "New jobs" : `Job ${began.from} again`}</h1>
      <Commands form={form} problem={problems.commands} inputs={inputs} change={change} submit={() => void submit()} />
      <section class="panel">
        <div class="submit-grid">
          {inputs.text("workdir", "Folder", "Where it runs, from the / on.", { class: "field-wide" })}
          <Environment
            likeness={likeness}
            choose={(like) => {
              isFolderTheirs.current = false;
              likeness.choose(like);
            }}
          />
        </div>
      </section>
      <section class="panel">
        <div class="submit-grid">
          {inputs.text("gpus", "GPUs", "How many each job wants; 0 for none.")}
          {inputs.text("share", "Share of a GPU", "0.5 or 1/3; empty: all of it.")}
          {inputs.text("vram", "GPU memory", "12G, or auto: what similar jobs needed.")}
          {inputs.text("time", "Time limit", "2h, 1h30m, 90s; empty: none.")}
          {inputs.text("priority", "Priority", "Higher goes first.")}
          {inputs.text("project", "Project", "Projects take turns.", { list: "submit-projects" })}
        </div>
        <datalist id="submit-projects">
          {projects.data.value?.projects.filter((one) => one.name).map((one) => <option key={one.name} value={one.name} />)}
        </datalist>
      </section>
      <Elsewhere inputs={inputs} />
      <More inputs={inputs} isOpen={isMoreOpen.current} />
      {Object.keys(form.kept).length > 0 && (
        <p class="faint">
          Also as before: {Object.keys(form.kept).join(", ").replace(/_seconds/g, "").replace("on_options", "options for the cluster")}.{" "}
          <button type="button" onClick={() => setForm({ ...form, kept: {} })}>
            Leave that out
          </button>
        </p>
      )}
      <p class="error submit-trouble" role="alert">
        {trouble}
      </p>
      <div class="actions submit-actions">
        {added && (
          <span class="submit-added">
            {wordsFor(added)}{" "}
            {linksTo(added).map((link) => (
              <a key={link.href} href={link.href}>
                {link.label}{" "}
              </a>
            ))}
          </span>
        )}
        <button type="button" disabled={isBusy} onClick={() => void tryOut()}>
          Dry run
        </button>
        <button class="primary" disabled={isBusy}>
          Add
        </button>
      </div>
      <div aria-live="polite">{prospects && <Prospects prospects={prospects} />}</div>
    </form>
  );
}

/** `Missing: command, folder. One field cannot be read: …` */
function troubleWith(form: Form, problems: Problems): string {
  const fields = Object.keys(problems) as Field[];
  const missing = fields.filter((field) => form[field] === "" || String(form[field]).trim() === "");
  const unread = fields.filter((field) => !missing.includes(field));
  const names = missing.map((field) => ({ commands: "the command", workdir: "the folder" })[field as string] ?? field);
  const parts = [names.length > 0 && `Missing: ${names.join(", ")}.`];
  if (unread.length === 1) parts.push(`One field cannot be read: ${problems[unread[0]!]!}`);
  if (unread.length > 1) parts.push(`${unread.length} fields cannot be read.`);
  return parts.filter(Boolean).join(" ");
}

function wordsFor({ first, last, is_new: isNew }: Added): string {
  if (!isNew) return "They had been added already:";
  return first === last ? "Added" : `Added ${count(last - first + 1, "job")}:`;
}

function linksTo({ first, last }: Added): Link[] {
  const one = (id: number) => ({ label: `job ${id}`, href: to(`job/${id}`) });
  if (last - first < LINKED) return Array.from({ length: last - first + 1 }, (_, place) => one(first + place));
  return [one(first), { label: "…", href: to("jobs", { order: "newest" }) }, one(last)];
}
