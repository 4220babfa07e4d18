import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { addKeys, type Key } from "../../keys";
import { go } from "../../router";
import { isReadOnly } from "../../state/session";
import { useVirtual } from "../../state/virtual";
import { count } from "../../words";
import { moveTo, type Target } from "./moving";
import type { JobPages } from "./pages";
import { Row } from "./Row";
import { toggle } from "./selection";

interface Props {
  name: string; // of what is asked for
  pages: JobPages;
  isInTurn: boolean; // jobs can be moved
  search: RefObject<HTMLInputElement | null>;
}

/** The job that the keys act on. It stays the same while rows come and go. */
interface Cursor {
  id: number | null;
  place: number; // where it was seen last
}

const HEIGHT = 40; // pixels of a row; on a narrow screen it has two lines
const NARROW_HEIGHT = 60;

const left = new Map<string, { top: number; cursor: Cursor }>(); // how tables were left, for Back

/** The rows, the cursor and the way through them. */
export function Table({ name, pages, isInTurn, search }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
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

  const [kept] = useState(() => left.get(name));
  const [cursor, setCursor] = useState<Cursor>(kept?.cursor ?? { id: null, place: 0 });
  const current = useRef(cursor);
  current.current = following(cursor, pages);
  useLayoutEffect(() => {
    if (total && kept) scroller.current!.scrollTop = kept.top;
  }, [total > 0]);
  const top = useRef(0); // the element itself may be gone when the table is left
  useEffect(() => () => void left.set(name, { top: top.current, cursor: current.current }), []);

  useEffect(() => {
    const job = () => pages.row(current.current.place);
    const step = (by: number) => {
      const place = Math.max(0, Math.min((pages.total.value ?? 1) - 1, current.current.place + by));
      setCursor({ id: pages.row(place)?.id ?? null, place });
      virtual.scrollToIndex(place, { align: "auto" });
    };
    const move = async (target: Target) => {
      const moved = job();
      if (moved && (await moveTo(pages, moved, target))) setCursor({ id: moved.id, place: current.current.place });
    };
    const moves: Key[] = [
      { keys: "J", does: "move the job down in the queue", run: () => void move("down") },
      { keys: "K", does: "move the job up in the queue", run: () => void move("up") },
      { keys: "T", does: "move the job to the top", run: () => void move("top") },
      { keys: "B", does: "move the job to the bottom", run: () => void move("bottom") },
    ];
    return addKeys([
      { keys: "j", does: "next job", run: () => step(1) },
      { keys: "k", does: "previous job", run: () => step(-1) },
      { keys: "Enter", does: "open the job", run: () => open(job()?.id) },
      { keys: "x", does: "choose the job", run: () => pick(job()?.id) },
      { keys: "/", does: "search", run: () => search.current?.focus() },
      ...(isInTurn && !isReadOnly.value ? moves : []),
    ]);
  }, []);

  const arrived = pages.arrived.value;
  return (
    <div class="job-table" role="table" aria-label="jobs" aria-rowcount={total + 1}>
      <div class="job-row job-head" role="row">
        <span role="columnheader">
          <span class="unseen">chosen</span>
        </span>
        <span role="columnheader">#</span>
        <span role="columnheader">name</span>
        <span role="columnheader">project</span>
        <span role="columnheader">state</span>
        <span role="columnheader">GPU</span>
        <span role="columnheader">took</span>
        <span role="columnheader">when</span>
      </div>
      {arrived > 0 && (
        <button
          class="jobs-arrived"
          onClick={() => {
            pages.showArrived();
            scroller.current!.scrollTop = 0;
          }}
        >
          {count(arrived, "new job")}
        </button>
      )}
      <div
        class="job-scroll"
        ref={scroller}
        tabIndex={0}
        role="rowgroup"
        aria-label="rows"
        onScroll={(event) => (top.current = event.currentTarget.scrollTop)}
      >
        <div class="job-rows" style={{ height: `${virtual.getTotalSize()}px` }}>
          {items.map((item) => (
            <Row
              key={item.key}
              place={item.index}
              top={item.start}
              height={item.size}
              job={pages.row(item.index)}
              isCurrent={item.index === current.current.place}
              isInTurn={isInTurn}
              pages={pages}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

/** The cursor where its job stands now. Where the job has left the list, the one in its place takes over. */
function following({ id, place }: Cursor, pages: JobPages): Cursor {
  const found = id === null ? null : pages.placeOf(id);
  return found === null ? { id: pages.row(place)?.id ?? id, place } : { id, place: found };
}

function open(id: number | undefined): void {
  if (id !== undefined) go(`job/${id}`);
}

function pick(id: number | undefined): void {
  if (id !== undefined) toggle(id);
}
