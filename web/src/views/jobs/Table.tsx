import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Job } from "../../api/types";
import { act } from "../../acts";
import { addKeys, type Key } from "../../keys";
import { go } from "../../router";
import { isReadOnly } from "../../state/session";
import { say, sayError } from "../../state/toasts";
import { useVirtual } from "../../state/virtual";
import { count } from "../../words";
import { dragged, follow } from "./dragging";
import { moveTo, type Target } from "./moving";
import { NUMBER, type Column } from "./columns";
import { Head } from "./Head";
import type { JobPages } from "./pages";
import { Row } from "./Row";
import { choose, chosen, isChosen, toggle } from "./selection";

interface Props {
  name: string; // of what is asked for
  pages: JobPages;
  columns: Column[];
  isCompact: boolean; // on a narrow screen: two lines a job in place of columns
  order: Order;
  sort: (order: Order) => void;
  isInTurn: boolean; // jobs can be moved
  search: RefObject<HTMLInputElement | null>;
}

export interface Order {
  order: string;
  reverse: string;
}

/** The job that the keys act on. It stays the same while rows come and go. */
interface Cursor {
  id: number | null;
  place: number; // where it was seen last
}

const HEIGHT = 40; // pixels of a row
const COMPACT_HEIGHT = 60; // of two lines
const GAP = 8; // between columns
const PICK = 28; // the width of the box to choose by
const PICK_BY_FINGER = 44;
const PADDING = 24;
const MOST_CHOSEN = 10_000; // jobs in one range

const left = new Map<string, { top: number; cursor: Cursor }>(); // how tables were left, for Back

/** The rows, the cursor and the way through them. */
export function Table({ name, pages, columns, isCompact, order, sort, isInTurn, search }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const head = useRef<HTMLDivElement>(null);
  const total = pages.total.value ?? 0;
  const virtual = useVirtual({
    count: total,
    estimateSize: () => (isCompact ? COMPACT_HEIGHT : HEIGHT),
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
  useEffect(() => {
    if (cursor.id === null && current.current.id !== null) setCursor(current.current);
  });
  useLayoutEffect(() => {
    if (total && kept) scroller.current!.scrollTop = kept.top;
  }, [total > 0]);
  const top = useRef(0); // the element itself may be gone when the table is left
  useEffect(() => () => void left.set(name, { top: top.current, cursor: current.current }), []);

  const inSight = useRef<ReadonlyMap<number, number>>(new Map()); // the places of jobs, by their numbers
  useLayoutEffect(() => {
    // The rows stay where they are on the screen, whatever comes or goes above them.
    const shift = shiftOf(inSight.current, pages);
    if (shift && scroller.current!.scrollTop > 0) scroller.current!.scrollTop += shift * (isCompact ? COMPACT_HEIGHT : HEIGHT);
  }, [pages.version.value]);
  useLayoutEffect(() => {
    const places = items.map(({ index }) => [pages.row(index)?.id, index] as const);
    inSight.current = new Map(places.filter((one): one is [number, number] => one[0] !== undefined));
  });

  const wanted = pages.nextInSight.value;
  useEffect(() => {
    if (wanted === null) return;
    pages.nextInSight.value = null;
    virtual.scrollToIndex(wanted, { align: "auto" });
  }, [wanted]);

  const anchor = useRef<Anchor | null>(null); // where a range begins
  const pick = useCallback((place: number, job: Job, isRange: boolean) => {
    const from = anchor.current;
    if (isRange && from) void chooseRange(pages, pages.placeOf(from.id) ?? from.place, place, isChosen(from.id)).catch(sayError);
    else toggle(job.id);
    anchor.current = { id: job.id, place };
  }, []);

  const isMovable = isInTurn && !isReadOnly.value;
  useEffect(() => {
    const job = () => pages.row(current.current.place);
    const pickCurrent = (isRange: boolean) => {
      const picked = job();
      if (picked) pick(current.current.place, picked, isRange);
    };
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
    const suspending = (action: "suspend" | "resume") => {
      const meant = chosen.value.size ? [...chosen.value] : [job()?.id].filter((id) => id !== undefined);
      void act(action, meant);
    };
    const acts: Key[] = [
      { keys: "S", does: "suspend the chosen jobs, or this one", isAct: true, run: () => suspending("suspend") },
      { keys: "R", does: "resume the chosen jobs, or this one", isAct: true, run: () => suspending("resume") },
    ];
    return addKeys([
      { keys: "j", does: "next job", run: () => step(1) },
      { keys: "k", does: "previous job", run: () => step(-1) },
      { keys: "Enter", does: "open the job", run: () => open(job()?.id) },
      { keys: "x", does: "choose the job", run: () => pickCurrent(false) },
      { keys: "X", does: "choose all from the last chosen one to this", run: () => pickCurrent(true) },
      { keys: "/", does: "search", run: () => search.current?.focus() },
      ...(isReadOnly.value ? [] : acts),
      ...(isMovable ? moves : []),
    ]);
  }, []);

  const over = dragged.value;
  const drag = isMovable
    ? (event: PointerEvent, id: number) => follow(event, id, scroller.current!, isCompact ? COMPACT_HEIGHT : HEIGHT, pages)
    : null;
  const arrived = pages.arrived.value;
  const pickWidth = window.matchMedia("(max-width: 640px)").matches ? PICK_BY_FINGER : PICK;
  const width = isCompact ? 0 : PADDING + pickWidth + [NUMBER, ...columns].reduce((sum, column) => sum + column.least + GAP, 0);
  const classes = ["job-table", isCompact && "is-compact", isMovable && "has-grips"];
  const layout = { "--columns": gridOf(columns, pickWidth), "--least": `${width}px` };
  return (
    <div class={classes.filter(Boolean).join(" ")} role="table" aria-label="jobs" aria-rowcount={total + 1} style={layout}>
      {!isCompact && <Head place={head} pages={pages} columns={columns} order={order} sort={sort} />}
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
        onScroll={(event) => {
          top.current = event.currentTarget.scrollTop;
          if (head.current) head.current.scrollLeft = event.currentTarget.scrollLeft;
        }}
      >
        <div class="job-rows" style={{ height: `${virtual.getTotalSize()}px` }}>
          {items.map((item) => (
            <Row
              key={item.key}
              place={item.index}
              top={item.start}
              height={item.size}
              job={pages.row(item.index)}
              columns={columns}
              isCurrent={item.index === current.current.place}
              over={over?.place === item.index ? over.side : null}
              drag={drag}
              pick={pick}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

interface Anchor {
  id: number;
  place: number; // where it was seen last
}

/** Everything between two rows becomes as the first of them is: chosen, or not. */
async function chooseRange(pages: JobPages, from: number, to: number, isIn: boolean): Promise<void> {
  if (Math.abs(to - from) >= MOST_CHOSEN) {
    say(`A range has at most ${count(MOST_CHOSEN, "job")}; the box above the table chooses all that match.`, true);
    return;
  }
  choose(await pages.numbersBetween(from, to), isIn);
}

function gridOf(columns: Column[], pickWidth: number): string {
  const widths = columns.map(({ least, isWide }) => `minmax(${least}px, ${isWide ? "1fr" : `${least}px`})`);
  return [`${pickWidth}px`, `${NUMBER.least}px`, ...widths].join(" ");
}

/** By how many places most of these jobs have moved: one of them may have been moved alone. */
function shiftOf(places: ReadonlyMap<number, number>, pages: JobPages): number {
  const times = new Map([[0, 0]]);
  for (const [id, before] of places) {
    const place = pages.placeOf(id);
    if (place !== null) times.set(place - before, (times.get(place - before) ?? 0) + 1);
  }
  return [...times].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
}

/** The cursor where its job stands now. Where the job has left the list, the one in its place takes over. */
function following({ id, place }: Cursor, pages: JobPages): Cursor {
  const found = id === null ? null : pages.placeOf(id);
  return found === null ? { id: pages.row(place)?.id ?? id, place } : { id, place: found };
}

function open(id: number | undefined): void {
  if (id !== undefined) go(`job/${id}`);
}
