// What the address asks for: which jobs, in which order, with which columns. It is the whole view.
import type { components } from "../../api/schema";
import { route } from "../../router";
import { isOrder } from "./columns";

export type ActFilter = components["schemas"]["ActFilter"];

const OF_NO_COLUMN = ["oldest", "turn"];

/** Which jobs, and in which order, in the words of the API. */
export interface Asked {
  state: string;
  project: string;
  user: string;
  text: string;
  order: string;
  reverse: string; // "true", or empty
}

export function asked(): Asked {
  const query = route.value.query;
  return {
    state: query.get("state") ?? "",
    project: query.get("project") ?? "",
    user: query.get("user") ?? "",
    text: query.get("text") ?? "",
    order: orderOf(query.get("order") ?? ""),
    reverse: query.get("reverse") === "true" ? "true" : "",
  };
}

/** What the address may name besides is left out, as it is of the columns. */
function orderOf(text: string): string {
  return OF_NO_COLUMN.includes(text) || isOrder(text) ? text : "newest";
}

/** The same jobs as an act means them, up to this number. */
export function filterOf({ state, project, user, text }: Asked, until: number, without: Iterable<number>): ActFilter {
  return {
    ids: `1-${until}`,
    without: [...without],
    ...(state && { state: state.split(",") as NonNullable<ActFilter["state"]> }),
    ...(project && { project }),
    ...(user && { user }),
    ...(text && { text }),
  };
}
