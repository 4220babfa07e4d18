// One stream of events for the whole tab. A reader that was cut off goes on where it was.
import { signal } from "@preact/signals";
import { ApiError, ask } from "./client";

export interface Event {
  id: number;
  at: string;
  kind: string;
  job: number | null;
  [more: string]: unknown;
}

export type Connection = "connecting" | "live" | "lost";

export const connection = signal<Connection>("connecting");

type Listener = (events: Event[]) => void;

const FIRST_PAUSE = 500; // milliseconds; doubled after each failure
const LONGEST_PAUSE = 10_000;
const SILENCE = 40_000; // the daemon says something every 15 seconds

const listeners = new Set<Listener>();
let last = "";
let running: AbortController | null = null;
let hasListened = false;

/** Hear of everything that happens; the returned function ends it. A `missed` event means: look for yourself. */
export function onEvents(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Begin to listen, and go on for as long as the page is open. */
export function listen(): void {
  stopListening();
  running = new AbortController();
  void keepListening(running.signal);
}

export function stopListening(): void {
  running?.abort();
  running = null;
}

async function keepListening(signal: AbortSignal): Promise<void> {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      await readOnce(signal, () => {
        pause = FIRST_PAUSE;
        connection.value = "live";
        // What was read shortly before the last stream was cut off, or since then, may have got no answer.
        if (hasListened) tell([missed()]);
        hasListened = true;
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return;
    }
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  }
}

async function readOnce(outer: AbortSignal, began: () => void): Promise<void> {
  const inner = new AbortController();
  const stop = () => inner.abort();
  outer.addEventListener("abort", stop);
  let alarm = window.setTimeout(stop, SILENCE);
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (last) headers["Last-Event-ID"] = last;
    const answer = await ask("v1/events", { headers, signal: inner.signal });
    began();
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      window.clearTimeout(alarm);
      alarm = window.setTimeout(stop, SILENCE);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop()!;
      tell(blocks.map(parsed).filter((event) => event !== null));
    }
  } finally {
    window.clearTimeout(alarm);
    outer.removeEventListener("abort", stop);
  }
}

function parsed(block: string): Event | null {
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) last = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? (JSON.parse(data) as Event) : null;
}

function missed(): Event {
  return { id: 0, at: "", kind: "events.missed", job: null };
}

function tell(events: Event[]): void {
  if (events.length) for (const listener of [...listeners]) listener(events);
}
