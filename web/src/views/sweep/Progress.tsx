import { progress } from "./progress";
import type { Sweep } from "./shapes";

export function Progress({ sweep }: { sweep: Sweep }) {
  const { done, total } = progress(sweep);
  const words = total === null ? done.toLocaleString("en") : `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  return (
    <span class="sweep-progress">
      {total !== null && <progress max={Math.max(1, total)} value={done} aria-label={`trials of sweep ${sweep.id}`} />}
      <span>{words}</span>
    </span>
  );
}
