import { useEffect, useMemo, useRef } from "preact/hooks";
import { refine, route } from "../router";
import "../style/jobs.css";
import { Bulk } from "./jobs/Bulk";
import { Filters } from "./jobs/Filters";
import { JobPages } from "./jobs/pages";
import { chooseNone } from "./jobs/selection";
import { Table } from "./jobs/Table";

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
  const query = route.value.query;
  const asked = {
    state: query.get("state") ?? "",
    project: query.get("project") ?? "",
    user: query.get("user") ?? "",
    text: query.get("text") ?? "",
    order: query.get("order") ?? "newest",
  };
  const key = JSON.stringify(asked);
  const pages = useMemo(() => new JobPages(asked), [key]);
  useEffect(() => () => pages.close(), [pages]);
  useEffect(() => chooseNone, [key]);
  const search = useRef<HTMLInputElement>(null);
  return (
    <div class="jobs">
      <Filters asked={asked} counts={pages.counts.value} search={search} change={refine} />
      <Bulk pages={pages} isInTurn={asked.order === "turn"} />
      {pages.error.value && <p class="error">{pages.error.value}</p>}
      {leavesOut(asked) && <p class="faint">{PARTIAL[asked.order]!.note}</p>}
      <Table key={key} name={key} pages={pages} isInTurn={asked.order === "turn"} search={search} />
      {pages.total.value === 0 && <p class="faint">No job matches.</p>}
    </div>
  );
}

/** Whether the order has no place for some of the jobs that are asked for. */
function leavesOut({ state, order }: { state: string; order: string }): boolean {
  const placed = PARTIAL[order]?.states.split(",");
  return placed !== undefined && (!state || state.split(",").some((one) => !placed.includes(one)));
}
