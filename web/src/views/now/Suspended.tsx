import type { Gpu } from "../../api/types";
import { to } from "../../router";
import { now } from "../../state/clock";
import { duration, size } from "../../words";

const MOST = 2; // jobs; more have no room

/** Who is suspended from a card: it is free, and its memory is in the machine's until they go on. */
export function Suspended({ gpu }: { gpu: Gpu }) {
  const all = gpu.suspended;
  if (!all.length) return null;
  const more = all.length - MOST;
  return (
    <p class="faint gpu-suspended" title={`suspended from it: ${all.map((one) => inWords(one)).join("; ")}`}>
      suspended from it:{" "}
      {all.slice(0, MOST).map((one, place) => (
        <span key={`${one.job_id ?? one.job}-${one.pid}`}>
          {place > 0 && "; "}
          {one.job_id === null ? `job ${one.job} of ${one.user}` : <a href={to(`job/${one.job_id}`)}>job {one.job}</a>}
          {rest(one)}
        </span>
      ))}
      {more > 0 && `; and ${more} more`}
    </p>
  );
}

function inWords(one: Gpu["suspended"][number]): string {
  return `job ${one.job} of ${one.user}${rest(one)}`;
}

/** ` for 3m, 20G` */
function rest(one: Gpu["suspended"][number]): string {
  const since = one.since_at ? ` for ${duration((now.value - Date.parse(one.since_at)) / 1000)}` : "";
  return `${since}${one.held_bytes ? `, ${size(one.held_bytes)}` : ""}`;
}
