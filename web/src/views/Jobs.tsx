import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { addKeys } from "../keys";
import { go, refine, route } from "../router";
import { useVirtual } from "../state/virtual";
import "../style/jobs.css";
import { Bulk } from "./jobs/Bulk";
import { Filters } from "./jobs/Filters";
import { JobPages } from "./jobs/pages";
import { Row } from "./jobs/Row";
import { chooseNone, toggle } from "./jobs/selection";

const HEIGHT = 40; // pixels of a row; on a narrow screen it has two lines
const NARROW_HEIGHT = 60;

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

  const scroller = useRef<HTMLDivElement>(null);
  const search = useRef<HTMLInputElement>(null);
  const isNarrow = window.matchMedia("(max-width: 640px)").matches;
  const total = pages.total.value ?? 0;
  const virtual = useVirtual({
    count: total,
    estimateSize: () => (isNarrow ? NARROW_HEIGHT : HEIGHT),
    scroller,
  });
  const items = virtual.getVirtualItems();
  void pages.version.value; // the rows below are read from the pages, which tell by this that they have changed
  useEffect(() => {
    const first = items[0];
    if (first) pages.show(first.index, items[items.length - 1]!.index);
  });

  const [cursor, setCursor] = useState(0);
  const place = useRef(0);
  place.current = cursor;
  useEffect(() => {
    const move = (step: number) => {
      const next = Math.max(0, Math.min((pages.total.value ?? 1) - 1, place.current + step));
      setCursor(next);
      virtual.scrollToIndex(next, { align: "auto" });
    };
    return addKeys([
      { keys: "j", does: "next job", run: () => move(1) },
      { keys: "k", does: "previous job", run: () => move(-1) },
      { keys: "Enter", does: "open the job", run: () => open(pages.row(place.current)?.id) },
      { keys: "x", does: "choose the job", run: () => pick(pages.row(place.current)?.id) },
      { keys: "/", does: "search", run: () => search.current?.focus() },
    ]);
  }, [pages]);

  const canDrag = asked.order === "turn";
  return (
    <div class="jobs">
      <Filters asked={asked} counts={pages.counts.value} search={search} change={refine} />
      <Bulk refresh={() => pages.refresh()} />
      {pages.error.value && <p class="error">{pages.error.value}</p>}
      <div class="job-table" role="table" aria-label="jobs" aria-rowcount={total + 1}>
        <div class="job-row job-head" role="row">
          <span role="columnheader" aria-label="chosen" />
          <span role="columnheader">#</span>
          <span role="columnheader">name</span>
          <span role="columnheader">project</span>
          <span role="columnheader">state</span>
          <span role="columnheader">GPU</span>
          <span role="columnheader">took</span>
          <span role="columnheader">when</span>
        </div>
        <div class="job-scroll" ref={scroller} tabIndex={0} role="rowgroup" aria-label="rows">
          <div class="job-rows" style={{ height: `${virtual.getTotalSize()}px` }}>
            {items.map((item) => (
              <Row
                key={item.key}
                place={item.index}
                top={item.start}
                height={item.size}
                job={pages.row(item.index)}
                isCurrent={item.index === cursor}
                canDrag={canDrag}
                refresh={() => pages.refresh()}
              />
            ))}
          </div>
        </div>
      </div>
      {pages.total.value === 0 && <p class="faint">No job matches.</p>}
    </div>
  );
}

function open(id: number | undefined): void {
  if (id !== undefined) go(`job/${id}`);
}

function pick(id: number | undefined): void {
  if (id !== undefined) toggle(id);
}
