import { effect, signal, type ReadonlySignal } from "@preact/signals";

/** The same signal, but not more often than every so many milliseconds. It follows for as long as it is observed. */
export function late<T>(source: ReadonlySignal<T>, pause: number): ReadonlySignal<T> {
  let timer = 0;
  let lastAt = -Infinity;
  let stop = () => {};
  const follow = () => {
    const value = source.value;
    window.clearTimeout(timer);
    timer = window.setTimeout(
      () => {
        lastAt = performance.now();
        followed.value = value;
      },
      Math.max(0, lastAt + pause - performance.now()),
    );
  };
  const followed = signal(source.peek(), {
    watched: () => {
      stop = effect(follow);
    },
    unwatched: () => {
      stop();
      window.clearTimeout(timer);
    },
  });
  return followed;
}
