// Calls to the daemon. Addresses are relative, so that the page works below any path prefix.
import { forgetToken, token } from "../state/session";

/** What the daemon says when it says no: one sentence and what to try. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly remedy: string,
    readonly field = "", // the part of the request that is meant, where it is known
  ) {
    super(message);
  }
}

/** For `catch`: a refusal is about this part of what was asked for. */
export function blame(field: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof ApiError && error.status ? new ApiError(error.status, error.code, error.message, error.remedy, field) : error;
  };
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function address(path: string, query: Query = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") asked.set(name, String(value));
  }
  const text = asked.toString();
  return text ? `${path}?${text}` : path;
}

/** Ask, and raise ApiError where the answer is no or does not come. */
export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (token.value) headers.set("Authorization", `Bearer ${token.value}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "no-answer", "dibs does not answer", "it may be restarting; this page tries again by itself");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) forgetToken();
  throw await refusal(answer);
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await ask(address(path, query), signal ? { signal } : {})).json()) as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const answer = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return (await answer.json()) as T;
}

async function refusal(answer: Response): Promise<ApiError> {
  try {
    const { error } = (await answer.json()) as { error: { code: string; message: string; remedy: string; field?: string } };
    return new ApiError(answer.status, error.code, error.message, error.remedy, error.field);
  } catch {
    return new ApiError(answer.status, "error", `dibs answered ${answer.status}`, "");
  }
}
