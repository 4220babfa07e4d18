// Data that keeps itself fresh: read again after events that concern it, but not more often than it is worth.
import { signal, type ReadonlySignal } from "@preact/signals";
import { onEvents, type Event } from "../api/stream";
import { inWords } from "./toasts";

export interface Live<T> {
  data: ReadonlySignal<T | null>;
  error: ReadonlySignal<string>;
  refresh: () => void;
  close: () => void;
}

interface Options {
  concerns?: (event: Event) => boolean; // which events make it old; all, if left out
  every?: number; // milliseconds after which it is old anyway
  atMost?: number; // milliseconds between two reads
}

export function live<T>(read: (signal: AbortSignal) => Promise<T>, options: Options = {}): Live<T> {
  const { concerns = () => true, every = 0, atMost = 500 } = options;
  const data = signal<T | null>(null);
  const error = signal("");
  const closing = new AbortController();
  let timer = 0;
  let isReading = false;
  let isOld = false;
  let lastAt = -Infinity;

  const plan = (pause: number) => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void look(), pause);
  };
  const refresh = () => {
    isOld = true;
    if (!isReading) plan(Math.max(0, lastAt + atMost - performance.now()));
  };
  const look = async () => {
    if (document.hidden && data.value !== null) return; // it is read again when the tab is visible
    isReading = true;
    isOld = false;
    try {
      data.value = await read(closing.signal);
      error.value = "";
    } catch (problem) {
      if (!closing.signal.aborted) error.value = inWords(problem);
    }
    isReading = false;
    lastAt = performance.now();
    if (closing.signal.aborted) return;
    if (isOld) plan(atMost);
    else if (every) plan(every);
  };
  const stop = onEvents((events) => {
    if (events.some((event) => event.kind === "events.missed" || concerns(event))) refresh();
  });
  const seen = () => {
    if (!document.hidden) refresh();
  };
  document.addEventListener("visibilitychange", seen);
  void look();
  return {
    data,
    error,
    refresh,
    close: () => {
      closing.abort();
      window.clearTimeout(timer);
      stop();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
