// Only the rows that can be seen are drawn. TanStack's core knows which; this ties it to Preact.
import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
  type VirtualizerOptions,
} from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useReducer, useState } from "preact/hooks";
import type { RefObject } from "preact";

type Options = Pick<VirtualizerOptions<HTMLElement, HTMLElement>, "count" | "estimateSize"> & {
  scroller: RefObject<HTMLElement | null>;
  overscan?: number;
};

export function useVirtual({ scroller, overscan = 10, ...options }: Options): Virtualizer<HTMLElement, HTMLElement> {
  const [, redraw] = useReducer((turn: number) => turn + 1, 0);
  const whole: VirtualizerOptions<HTMLElement, HTMLElement> = {
    ...options,
    overscan,
    getScrollElement: () => scroller.current,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => redraw(0),
  };
  const [virtualizer] = useState(() => new Virtualizer(whole));
  virtualizer.setOptions(whole);
  useEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  return virtualizer;
}
