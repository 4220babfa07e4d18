// Wheel, drag and pinch over the timeline.
import type { Signal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { now } from "../../state/clock";
import type { Scene } from "./paint";
import { moved, zoomed, type Sight } from "./sight";

interface Hears {
  point: (left: number, top: number) => void;
  click: (left: number, top: number) => void;
  leave: () => void;
}

const CLICK = 4; // pixels: who moves less has clicked
const WHEEL = 0.0016; // how much a pixel of the wheel zooms

export function useGestures(target: RefObject<HTMLElement | null>, sight: Signal<Sight>, scene: () => Scene, hears: Hears): void {
  const latest = useRef(hears);
  latest.current = hears;
  useEffect(() => {
    const element = target.current!;
    const fingers = new Map<number, { left: number; top: number }>();
    let moves = 0; // pixels since the pointer went down
    let canDrag = false;

    const place = (event: MouseEvent) => {
      const box = element.getBoundingClientRect();
      return { left: event.clientX - box.left, top: event.clientY - box.top };
    };
    const perPixel = () => sight.value.span / Math.max(1, scene().width - scene().labels);
    const moment = (left: number) => scene().first + (left - scene().labels) * perPixel();
    const zoom = (factor: number, left: number) => (sight.value = zoomed(sight.value, factor, moment(left), now.value));
    const move = (pixels: number) => (sight.value = moved(sight.value, -pixels * perPixel(), now.value));

    const wheel = (event: WheelEvent) => {
      const { left } = place(event);
      if (left < scene().labels) return; // there it scrolls the rows
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(-(event.deltaX || event.deltaY) * lines);
      else zoom(Math.exp(event.deltaY * lines * WHEEL), left);
    };
    const down = (event: PointerEvent) => {
      if (event.button !== 0) return;
      const at = place(event);
      if (at.left >= element.clientWidth) return; // the scroll bar
      fingers.set(event.pointerId, at);
      canDrag = at.left >= scene().labels;
      if (fingers.size === 1) moves = 0;
    };
    const drag = (event: PointerEvent) => {
      const at = place(event);
      const before = fingers.get(event.pointerId);
      if (!before) {
        latest.current.point(at.left, at.top);
        return;
      }
      if (!canDrag) return;
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      fingers.set(event.pointerId, at);
      moves += Math.abs(at.left - before.left) + Math.abs(at.top - before.top);
      if (moves > CLICK && !element.hasPointerCapture(event.pointerId)) element.setPointerCapture(event.pointerId);
      if (other) {
        const distance = (finger: { left: number }) => Math.max(20, Math.abs(finger.left - other.left));
        zoom(distance(before) / distance(at), (at.left + other.left) / 2);
      } else if (moves > CLICK) {
        latest.current.leave();
        move(at.left - before.left);
        if (event.pointerType === "mouse") element.scrollTop -= at.top - before.top;
      }
    };
    const up = (event: PointerEvent) => {
      if (!fingers.delete(event.pointerId) || moves > CLICK) return;
      const { left, top } = place(event);
      latest.current.click(left, top);
    };
    const cancel = (event: PointerEvent) => {
      fingers.delete(event.pointerId);
      latest.current.leave();
    };
    const leave = () => latest.current.leave();
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("pointerdown", down);
    element.addEventListener("pointermove", drag);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", cancel);
    element.addEventListener("pointerleave", leave);
    return () => {
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("pointerdown", down);
      element.removeEventListener("pointermove", drag);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", cancel);
      element.removeEventListener("pointerleave", leave);
    };
  }, [sight]);
}
