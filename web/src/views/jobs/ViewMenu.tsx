import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Icon } from "../../parts/Icon";
import { Menu } from "../../parts/Menu";
import { route } from "../../router";
import { remember, remembered } from "../../state/remembered";

/** A view by name. What it shows is in its address; this browser only remembers the name for it. */
interface NamedView {
  name: string;
  query: string;
}

const KEY = "dibs-job-views";
const LONGEST_NAME = 60;

const views = signal(remembered<NamedView[]>(KEY, []).filter(isView));

/** The views that were given a name in this browser. */
export function ViewMenu() {
  return <Menu label="Views">{() => <ViewList />}</Menu>;
}

function ViewList() {
  const [name, setName] = useState("");
  const [wrong, setWrong] = useState("");
  const query = route.value.query.toString();
  const change = (next: NamedView[]) => {
    views.value = next;
    return remember(KEY, next);
  };
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const wanted = name.trim();
    if (!wanted) return setWrong("Give the view a name.");
    if (wanted.length > LONGEST_NAME) return setWrong(`A name has at most ${LONGEST_NAME} letters.`);
    const isKept = change([...views.value.filter((one) => one.name !== wanted), { name: wanted, query }]);
    if (!isKept) return setWrong("This browser keeps nothing for this page: the name is gone with the tab.");
    setName("");
  };
  return (
    <>
      <ul class="view-list">
        {views.value.map((one) => (
          <li key={one.name}>
            <a href={`#/jobs?${one.query}`} aria-current={one.query === query ? "true" : undefined}>
              {one.name}
            </a>
            <button class="quiet" aria-label={`forget the view ${one.name}`} onClick={() => change(views.value.filter((other) => other !== one))}>
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      <form class="view-form" onSubmit={save}>
        <label for="view-name">This view, by name</label>
        <input
          id="view-name"
          autocomplete="off"
          value={name}
          aria-invalid={wrong !== ""}
          aria-describedby="view-note"
          onInput={(event) => {
            setName(event.currentTarget.value);
            setWrong("");
          }}
        />
        <button>Save</button>
        <p id="view-note" class={wrong ? "error field-note" : "faint field-note"}>
          {wrong || "Kept in this browser. The address has all of it, to be shared."}
        </p>
      </form>
    </>
  );
}

function isView(one: unknown): one is NamedView {
  const { name, query } = (one ?? {}) as Partial<NamedView>;
  return typeof name === "string" && typeof query === "string";
}
