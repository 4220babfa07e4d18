import { sayError } from "../state/toasts";
import { unwatch, watch, watched } from "../state/watched";

/** A message when these jobs end. */
export function TellMe({ ids }: { ids: number[] }) {
  const isOn = ids.length > 0 && ids.every((id) => watched.value.has(id));
  return (
    <button aria-pressed={isOn} title="A message when it ends, while this page is open" onClick={() => (isOn ? unwatch(ids) : void watch(ids).catch(sayError))}>
      Tell me
    </button>
  );
}
