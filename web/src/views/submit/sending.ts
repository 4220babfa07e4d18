// From the form to the daemon: looked up, tried, added.
import { blame, get, post } from "../../api/client";
import { newKey } from "../../api/keys";
import type { Reason } from "../../api/types";
import type { NewJob } from "../../state/draft";
import type { Asked, Form } from "./form";

export type Like = number | "daemon";

export interface Prospect {
  gpus: (number | string)[] | null;
  starts_at: string | null;
  reason: Reason | null;
  lessons?: { sentence: string }[];
}

export interface Added {
  first: number;
  last: number;
  is_new: boolean;
  notes: string[]; // what may hold them up
}

interface Body {
  like: Like;
  defaults: NewJob;
  jobs: NewJob[];
}

export async function check(form: Form, asked: Asked, like: Like): Promise<Prospect[]> {
  return (await post<{ prospects: Prospect[] }>("v1/jobs/check", await bodyOf(asked, form.afterKind, like))).prospects;
}

/**
 * Add what the form asks for. The same form again has the same key until an answer came: nothing is added twice.
 * The form as it was typed, since `@` and `+2h` may mean something else a moment later.
 */
export async function add(form: Form, asked: Asked, like: Like): Promise<Added> {
  const content = JSON.stringify([form, like]);
  if (unanswered?.content !== content) unanswered = { content, key: newKey() };
  const body = await bodyOf(asked, form.afterKind, like);
  const added = await post<Added>("v1/jobs", { key: unanswered.key, ...body });
  unanswered = null;
  return added;
}

let unanswered: { content: string; key: string } | null = null;

async function bodyOf({ defaults, jobs, after }: Asked, kind: Form["afterKind"], like: Like): Promise<Body> {
  if (!after.length) return { like, defaults, jobs };
  const query = new URLSearchParams(after.map((one) => ["ref", one]));
  const { ids } = await get<{ ids: number[] }>(`v1/find?${query.toString()}`).catch(blame("after"));
  return { like, defaults: { ...defaults, after: ids.map((job) => ({ job, kind })) }, jobs };
}
