// Which lines are drawn, and what moves them: the end that is followed, a line that is gone to, the reader's hand.
import type { VirtualItem } from "@tanstack/virtual-core";
import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useVirtual } from "../../../state/virtual";
import type { Lines } from "./lines";
import { isWrapped } from "./wrap";

export const HEIGHT = 20; // pixels of a line that is not broken
// Browsers draw nothing beyond some 17 million pixels: of a longer log the rows are a window that moves with the reader.
const MOST = 200_000;
const STEP = 50_000; // rows by which the window moves on while the end is followed: not with every line
const EDGE = 2_000; // rows from the window's end at which it moves
const NEAR = 4; // pixels from the end that still are the end

export interface Rows {
  items: VirtualItem[];
  base: number; // the place of the first row in the log
  height: number; // of all rows, in pixels
  isFollowing: boolean;
  isInTail: boolean; // the reader has left the end of a log whose lines are not counted yet
  measure: ((row: HTMLElement | null) => void) | undefined;
  goTo: (place: number) => void;
  goToEnd: () => void;
  setFollowing: (yes: boolean) => void;
  onScroll: () => void;
}

export function useRows(lines: Lines, scroller: RefObject<HTMLElement | null>, begin: number | null): Rows {
  const total = lines.total.value;
  void lines.version.value;
  const [window, setWindow] = useState({ base: 0, isFollowing: begin === null, isInTail: false });
  const { isFollowing, isInTail } = window;
  const base = Math.min(window.base, Math.max(0, total - 1));
  const first = isFollowing ? Math.max(0, Math.ceil((total - MOST) / STEP) * STEP) : base;
  const count = Math.min(MOST, total - first);
  const virtual = useVirtual({ count, estimateSize: () => HEIGHT, scroller, overscan: 20 });
  const items = virtual.getVirtualItems();
  const wanted = useRef<number | null>(begin); // a line to go to as soon as it is there
  const lastTop = useRef(0);
  const fromEnd = useRef(0); // lines between the top of what is read in the tail and the end
  const topRow = () => virtual.getVirtualItemForOffset(scroller.current?.scrollTop ?? 0)?.index ?? 0;

  const goTo = useCallback(
    (place: number) => {
      wanted.current = place;
      setWindow({ base: Math.max(0, place - MOST / 2), isFollowing: false, isInTail: false });
    },
    [lines],
  );
  const goToEnd = useCallback(() => {
    wanted.current = null;
    setWindow((now) => ({ ...now, isFollowing: true, isInTail: false }));
  }, [lines]);
  const setFollowing = (yes: boolean) => (yes ? goToEnd() : setWindow({ base: first, isFollowing: false, isInTail: false }));

  const isCounted = lines.isCounted.value;
  useEffect(() => {
    if (isInTail && isCounted) goTo(Math.max(0, lines.total.value - fromEnd.current));
  }, [isInTail, isCounted]);

  // Another window or another width of lines: what was measured holds no more, the line at the top stays.
  const before = useRef({ first, isWrapped: isWrapped.value });
  const kept = useRef<number | null>(null);
  useLayoutEffect(() => {
    const was = before.current;
    before.current = { first, isWrapped: isWrapped.value };
    if (was.first === first && was.isWrapped === isWrapped.value) return;
    const place = kept.current ?? was.first + topRow();
    kept.current = null;
    virtual.measure();
    if (!isFollowing && wanted.current === null) virtual.scrollToIndex(place - first, { align: "start" });
  });

  useLayoutEffect(() => {
    const holder = scroller.current;
    if (!holder || (!count && isCounted)) return;
    if (isFollowing) {
      holder.scrollTop = holder.scrollHeight;
      lastTop.current = holder.scrollTop;
    } else if (wanted.current !== null && wanted.current < first + count) {
      virtual.scrollToIndex(wanted.current - first, { align: "center" });
      wanted.current = null;
    }
  });

  useEffect(() => {
    const [one, last] = [items[0], items.at(-1)];
    if (one && last) lines.show(first + one.index, first + last.index);
  });

  const onScroll = () => {
    const holder = scroller.current;
    if (!holder) return; // the view is gone; the browser tells of a scroll a frame later
    const isUp = holder.scrollTop < lastTop.current - 1;
    const isAtEnd = holder.scrollHeight - holder.scrollTop - holder.clientHeight < NEAR;
    lastTop.current = holder.scrollTop;
    if (!lines.isCounted.value && (isFollowing || isInTail)) {
      fromEnd.current = lines.tail.value.length - Math.floor(holder.scrollTop / HEIGHT);
      if (isFollowing && isUp && !isAtEnd) setWindow({ base: first, isFollowing: false, isInTail: true });
      return;
    }
    if (isFollowing && isUp && !isAtEnd) setWindow({ base: first, isFollowing: false, isInTail: false });
    if (isFollowing || wanted.current !== null) return;
    const top = topRow();
    const move = (base: number) => {
      kept.current = first + top;
      setWindow({ base, isFollowing: false, isInTail: false });
    };
    if (isAtEnd && first + count >= total) goToEnd();
    else if (top < EDGE && first > 0) move(Math.max(0, first - MOST / 2));
    else if (top > count - EDGE && first + count < total) move(Math.min(total - MOST, first + MOST / 2));
  };
  return {
    items,
    base: first,
    height: virtual.getTotalSize(),
    isFollowing,
    isInTail,
    measure: isWrapped.value ? virtual.measureElement : undefined,
    goTo,
    goToEnd,
    setFollowing,
    onScroll,
  };
}
