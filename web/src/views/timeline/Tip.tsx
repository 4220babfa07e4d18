import type { State } from "../../api/types";
import { StateBadge } from "../../parts/StateBadge";
import { placeInWords } from "../../places";
import { now } from "../../state/clock";
import { stretchOf, sum } from "../../elapsed";
import { clock, duration } from "../../words";
import type { Item } from "./rows";

interface Props {
  item: Item;
  left: number;
  top: number;
  width: number; // of the chart: the tip stays inside
  height: number;
}

const WIDTH = 260; // as in timeline.css
const HEIGHT = 130; // at most, of nearly all

export function Tip({ item, left, top, width, height }: Props) {
  const suspended = sum(
    item.suspended.map((one) => stretchOf(one.since_at, one.until_at)),
    now.value,
  );
  const ran = sum([stretchOf(item.started_at, item.ended_at)], now.value) - suspended;
  const beside = `${Math.max(0, Math.min(left + 12, width - WIDTH))}px`;
  const isLow = top + HEIGHT > height && top > HEIGHT;
  const place = isLow ? { left: beside, bottom: `${height - top + 10}px` } : { left: beside, top: `${top + 16}px` };
  return (
    <div class="timeline-tip" role="status" style={place}>
      <b>
        job {item.job} {item.name}
      </b>
      <span>
        <StateBadge state={item.state as State} /> {duration(ran / 1000)}
        {suspended > 0 && ` and suspended for ${duration(suspended / 1000)}`}
        {item.cause && ` · ${item.cause}`}
      </span>
      <span class="faint">{[placeInWords(item) || "no GPU", item.project, item.user].filter(Boolean).join(" · ")}</span>
      <span class="faint">
        {clock(item.started_at)}
        {item.attempt > 1 && ` · attempt ${item.attempt}`}
      </span>
    </div>
  );
}
