import type { Gpu } from "../../api/types";
import { to } from "../../router";
import { now } from "../../state/clock";
import { user } from "../../state/session";
import { duration, size } from "../../words";

const MOST_NAMED = 3; // more have only room for their numbers

interface Part {
  key: string;
  short: string;
  long: string;
  share: number;
  job: number | null; // null: it is not a job of this queue
  isForeign: boolean; // without a lease
}

/** Who has which part of a card: as wide as the part. It never needs a second line. */
export function Parts({ gpu }: { gpu: Gpu }) {
  const parts = partsOf(gpu, now.value);
  const free = 1 - parts.reduce((sum, part) => sum + part.share, 0);
  const isNamed = parts.length <= MOST_NAMED;
  return (
    <ul class={isNamed ? "parts" : "parts is-packed"}>
      {parts.map((part) => (
        <li key={part.key} style={{ flexGrow: String(part.share) }} class={part.isForeign ? "part-foreign" : undefined} title={part.long}>
          {part.job === null ? (
            <span>{isNamed ? part.long : part.short}</span>
          ) : (
            <a href={to(`job/${part.job}`)} aria-label={part.long}>
              {isNamed ? part.long.replace(/^job /, "") : part.short}
            </a>
          )}
        </li>
      ))}
      {free > 0 && <li class="part-free" style={{ flexGrow: String(free) }} aria-hidden="true" />}
    </ul>
  );
}

function partsOf(gpu: Gpu, at: number): Part[] {
  const holders = gpu.holders.map((holder) => {
    const share = fraction(holder.share);
    const words = [
      `job ${holder.job}`,
      holder.user !== user.value && `of ${holder.user}`,
      share < 1 && holder.share,
      holder.since_at && duration((at - Date.parse(holder.since_at)) / 1000),
    ];
    return {
      key: `${holder.job_id ?? holder.job}-${holder.pid}`,
      short: holder.job.split(" ")[0]!,
      long: words.filter(Boolean).join(" · "),
      share,
      job: holder.job_id,
      isForeign: false,
    };
  });
  const foreign = gpu.processes.filter((one) => one.is_foreign);
  const rest = Math.max(0.25, 1 - holders.reduce((sum, one) => sum + one.share, 0));
  const strangers = foreign.map((one) => ({
    key: `pid ${one.pid}`,
    short: String(one.pid),
    long: `${one.name || "a process"} of ${one.user ?? "an unknown user"} · without a lease, pid ${one.pid}, ${size(one.memory_bytes)}`,
    share: rest / foreign.length,
    job: null,
    isForeign: true,
  }));
  return [...holders, ...strangers];
}

/** `1/8` or `1`. */
function fraction(text: string): number {
  const [over = "1", under = "1"] = text.split("/");
  return Number(over) / Number(under) || 1;
}
