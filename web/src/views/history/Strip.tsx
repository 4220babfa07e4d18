import { useEffect, useRef } from "preact/hooks";
import type { CardPast } from "../../api/types";
import { Palette } from "../timeline/palette";
import { KINDS, LOOKS, USES, full, secondsOf, type Shown } from "./uses";

interface Props {
  card: CardPast;
  cards: readonly CardPast[];
  shown: Shown;
  steps: number;
  isDark: boolean; // painted again when it changes
}

const HEIGHT = 24; // pixels

/** One card's history as a picture: a column for each step, stretched by the style sheet. */
export function Strip({ card, cards, shown, steps, isDark }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !canvas.current) return;
    context.clearRect(0, 0, steps, HEIGHT);
    const palette = new Palette(canvas.current);
    if (shown === "use") paintUses(context, card, palette);
    else paintLevels(context, KINDS[shown].mean(card), full(shown, card, cards), palette);
  }, [card, shown, steps, isDark]);
  return <canvas ref={canvas} class="history-strip" width={steps} height={HEIGHT} aria-hidden="true" />;
}

/** Stacked from the bottom; what is unknown leaves the stripes of the ground. */
function paintUses(context: CanvasRenderingContext2D, card: CardPast, palette: Palette): void {
  card.job_seconds.forEach((_, step) => {
    const all = Math.max(
      1,
      USES.reduce((total, use) => total + secondsOf(card, use)[step]!, 0),
    );
    let bottom = HEIGHT;
    for (const use of USES) {
      const height = (HEIGHT * secondsOf(card, use)[step]!) / all;
      if (use !== "unknown" && height > 0) {
        context.fillStyle = palette.of(LOOKS[use].variable);
        context.fillRect(step, bottom - height, 1, height);
      }
      bottom -= height;
    }
  });
}

function paintLevels(context: CanvasRenderingContext2D, values: readonly (number | null)[], most: number, palette: Palette): void {
  values.forEach((value, step) => {
    if (value === null) return;
    context.globalAlpha = 1;
    context.fillStyle = palette.of("--cold");
    context.fillRect(step, 0, 1, HEIGHT);
    context.globalAlpha = Math.min(1, value / Math.max(1e-9, most));
    context.fillStyle = palette.of("--hot");
    context.fillRect(step, 0, 1, HEIGHT);
  });
  context.globalAlpha = 1;
}
