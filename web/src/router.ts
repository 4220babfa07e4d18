// Where we are: `#/jobs?state=failed`. Behind the hash, so that any path prefix in front of the page works.
import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
window.addEventListener("hashchange", () => (hash.value = location.hash));

export interface Route {
  path: string[]; // ["job", "17", "log"]
  query: URLSearchParams;
}

export const route = computed<Route>(() => {
  const [path = "", query = ""] = hash.value.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
});

/** The text itself if it is not such a code: users can type anything into the address. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const view = computed(() => route.value.path[0] ?? "now");

/** The address of a place in the page. */
export function to(path: string, query: Record<string, string | number | undefined> = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") asked.set(name, String(value));
  const text = asked.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function go(path: string, query: Record<string, string | number | undefined> = {}): void {
  location.hash = to(path, query);
  hash.value = location.hash; // the browser's event comes later; code that refines the address meanwhile needs it
}

/** Change what is asked for without a new entry in the history: every letter of a search would be one. */
export function refine(query: Record<string, string | undefined>): void {
  if (location.hash !== hash.value) return; // the user follows a link at this moment: do not undo it
  const asked = new URLSearchParams(route.value.query);
  for (const [name, value] of Object.entries(query)) {
    if (value) asked.set(name, value);
    else asked.delete(name);
  }
  const text = asked.toString();
  history.replaceState(null, "", `#/${route.value.path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`);
  hash.value = location.hash;
}
