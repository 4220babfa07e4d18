import type { RefObject } from "preact";
import { useRef } from "preact/hooks";
import type { Found, LogSearch } from "./search";

const PAUSE = 300; // milliseconds after the last letter
const LONGEST = 200; // characters that the daemon looks for

interface Props {
  search: LogSearch;
  field: RefObject<HTMLInputElement | null>;
  go: (found: Found | null) => void;
}

export function SearchBox({ search, field, go }: Props) {
  const timer = useRef(0);
  const begin = async (text: string) => go(await search.search(text));
  const type = (text: string) => {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void begin(text), PAUSE);
  };
  const press = async (event: KeyboardEvent) => {
    const input = event.currentTarget as HTMLInputElement;
    if (event.key === "Escape") {
      input.value = "";
      type("");
      input.blur();
    } else if (event.key === "Enter") {
      window.clearTimeout(timer.current);
      if (input.value !== search.query.value) await begin(input.value);
      else go(await (event.shiftKey ? search.previous() : search.next()));
    }
  };
  return (
    <div class="log-search" role="search">
      <input
        ref={field}
        type="search"
        placeholder="Search the log ( / )"
        aria-label="search the log"
        spellcheck={false}
        maxLength={LONGEST}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => void press(event)}
      />
      <span class="faint log-found" role="status">
        {said(search)}
      </span>
      {search.lines.value.length > 0 && (
        <>
          <button class="quiet" aria-label="previous match" title="previous match (N)" onClick={() => void search.previous().then(go)}>
            ↑
          </button>
          <button class="quiet" aria-label="next match" title="next match (n)" onClick={() => void search.next().then(go)}>
            ↓
          </button>
        </>
      )}
    </div>
  );
}

function said(search: LogSearch): string {
  if (!search.query.value) return "";
  if (search.error.value) return search.error.value;
  const many = search.lines.value.length;
  if (!many) return search.isSearching.value || search.isMore.value ? "searching…" : "not found";
  const more = search.isMore.value ? "+" : "";
  return `${(search.at.value + 1).toLocaleString("en")} of ${many.toLocaleString("en")}${more}`;
}
