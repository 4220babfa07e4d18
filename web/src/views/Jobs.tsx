import { useEffect, useMemo, useRef } from "preact/hooks";
import { refine, route } from "../router";
import "../style/jobs.css";
import { asked } from "./jobs/asked";
import { Bulk } from "./jobs/Bulk";
import { columnsOf } from "./jobs/columns";
import { Filters } from "./jobs/Filters";
import { JobPages } from "./jobs/pages";
import { useReasons } from "./jobs/reasons";
import { chooseNone } from "./jobs/selection";
import { Table } from "./jobs/Table";
import { Tools } from "./jobs/Tools";

/** Orders that only some jobs have a place in, and what is said about the others. */
const PARTIAL: Record<string, { states: string; note: string }> = {
  turn: { states: "queued", note: "Only queued jobs have a turn: all others are left out." },
  ended: {
    states: "succeeded,failed,timed_out,lost,cancelled",
    note: "Only jobs that have ended have such a place: all others are left out.",
  },
};

/** Every job there is. The server has the list; the page has what can be seen of it. */
export default function Jobs() {
  const wanted = asked();
  const key = JSON.stringify(wanted);
  const pages = useMemo(() => new JobPages(wanted), [key]);
  useEffect(() => () => pages.close(), [pages]);
  useEffect(() => chooseNone, [key]);
  const named = route.value.query.get("columns") ?? "";
  const columns = useMemo(() => columnsOf(named), [named]);
  useReasons(columns.some((column) => column.key === "why"));
  const isCompact = !named && window.matchMedia("(max-width: 640px)").matches;
  const search = useRef<HTMLInputElement>(null);
  return (
    <div class="jobs">
      <Filters asked={wanted} counts={pages.counts.value} search={search} change={refine}>
        <Tools asked={wanted} pages={pages} columns={columns} change={refine} />
      </Filters>
      <Bulk asked={wanted} pages={pages} isInTurn={wanted.order === "turn"} />
      {pages.error.value && <p class="error">{pages.error.value}</p>}
      {leavesOut(wanted) && <p class="faint">{PARTIAL[wanted.order]!.note}</p>}
      {pages.isPartial.value && <p class="faint">There are too many jobs to sort: the oldest are left out.</p>}
      <Table
        key={key}
        name={key}
        pages={pages}
        columns={columns}
        isCompact={isCompact}
        order={wanted}
        sort={({ order, reverse }) => refine({ order, reverse })}
        isInTurn={wanted.order === "turn"}
        search={search}
      />
      {pages.total.value === 0 && <p class="faint">No job matches.</p>}
    </div>
  );
}

/** Whether the order has no place for some of the jobs that are asked for. */
function leavesOut({ state, order }: { state: string; order: string }): boolean {
  const placed = PARTIAL[order]?.states.split(",");
  return placed !== undefined && (!state || state.split(",").some((one) => !placed.includes(one)));
}
