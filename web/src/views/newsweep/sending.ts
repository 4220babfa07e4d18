// From the form to the daemon: tried as it is typed, and begun once.
import { post } from "../../api/client";
import { newKey } from "../../api/keys";
import type { NewJob } from "../../state/draft";
import type { Like } from "../submit/sending";
import type { Spec } from "./form";

export interface Preview {
  size: number | null; // null: it does not end by itself
  commands: string[]; // the first ones
  left_out: number; // points among these that conditions leave out
}

export interface Body {
  like: Like;
  defaults: NewJob;
  spec: Spec;
}

export function preview(body: Body): Promise<Preview> {
  return post<Preview>("v1/sweeps/check", body);
}

/** The number of the new sweep. The same form again has the same key until an answer came: it begins once. */
export async function begin(body: Body): Promise<number> {
  const content = JSON.stringify(body);
  if (unanswered?.content !== content) unanswered = { content, key: newKey() };
  const { id } = await post<{ id: number }>("v1/sweeps", { key: unanswered.key, ...body });
  unanswered = null;
  return id;
}

let unanswered: { content: string; key: string } | null = null;
