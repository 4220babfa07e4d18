// Who we are to the daemon. The token comes for a one-time code and is in no address.
import { computed, signal } from "@preact/signals";

interface Session {
  token: string;
  read_only: boolean;
  user: string;
  version: string;
}

const KEY = "dibs-session";

const session = signal<Session | null>(remembered());

export const token = computed(() => session.value?.token ?? "");
export const isReadOnly = computed(() => session.value?.read_only ?? true);
export const user = computed(() => session.value?.user ?? "");
export const isSignedIn = computed(() => session.value !== null);
export const refused = signal(""); // why a code, or the token, was not taken

/** Take the code out of the address, where `dibs web` has put it, and ask for a session. */
export async function signInFromAddress(): Promise<void> {
  const match = /^#code=([\w-]+)$/.exec(location.hash);
  if (!match) return;
  location.replace("#/now"); // not replaceState: the router hears of this one, and the code stays out of the history
  await signIn(match[1]!);
}

export async function signIn(code: string): Promise<void> {
  refused.value = "";
  try {
    const answer = await fetch("v1/web/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code: code.trim() }),
      cache: "no-store",
      credentials: "omit",
    });
    const body = (await answer.json()) as Session & { error?: { message: string; remedy: string } };
    if (body.error) {
      refused.value = `${body.error.message}: ${body.error.remedy}`;
      return;
    }
    session.value = body;
    localStorage.setItem(KEY, JSON.stringify(body));
  } catch {
    refused.value = "dibs does not answer: see `dibs daemon status`";
  }
}

/** The daemon does not take our token any more. */
export function forgetToken(): void {
  localStorage.removeItem(KEY);
  if (session.value) refused.value = "This browser was signed out: its token is no longer valid. Type `dibs web` for a new code.";
  session.value = null;
}

function remembered(): Session | null {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "null") as Session | null;
    return kept?.token ? kept : null;
  } catch {
    return null;
  }
}
