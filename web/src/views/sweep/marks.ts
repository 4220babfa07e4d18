// Points of a chart by shape and colour: not all users see the colours.

export type Shape = "dot" | "ring" | "triangle" | "cross";

export interface Style {
  shape: Shape;
  colour: string; // a variable of the style sheet
  size: number; // pixels from the middle to the edge
  opacity?: number;
}

const SQUARE = 2.2; // pixels: smaller dots look the same as squares, which are painted ten times as fast

export interface Marks {
  x: Float64Array; // in the units of the axes; not a number where there is nothing to draw
  y: Float64Array;
  styles: Uint8Array; // an index for each point; those with a higher one are drawn on top
}

/** Paint points of one style whose places, in pixels, are these. */
export function paintMarks(context: CanvasRenderingContext2D, style: Style, colour: string, places: Iterable<[number, number]>, scale: number): void {
  const size = style.size * scale;
  const draw = DRAWN[style.shape];
  context.save();
  context.globalAlpha = style.opacity ?? 1;
  context.fillStyle = colour;
  if (style.shape === "dot" && size < SQUARE) {
    for (const [x, y] of places) context.fillRect(x - size, y - size, 2 * size, 2 * size);
    context.restore();
    return;
  }
  context.beginPath();
  for (const [x, y] of places) draw(context, x, y, size);
  if (style.shape === "dot" || style.shape === "triangle") {
    context.fill();
  } else {
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * scale;
    context.stroke();
  }
  context.restore();
}

type Draw = (context: CanvasRenderingContext2D, x: number, y: number, size: number) => void;

const DRAWN: Record<Shape, Draw> = {
  dot: (context, x, y, size) => {
    context.moveTo(x + size, y);
    context.arc(x, y, size, 0, 2 * Math.PI);
  },
  ring: (context, x, y, size) => {
    context.moveTo(x + size, y);
    context.arc(x, y, size, 0, 2 * Math.PI);
  },
  triangle: (context, x, y, size) => {
    context.moveTo(x, y - size);
    context.lineTo(x + size, y + size * 0.8);
    context.lineTo(x - size, y + size * 0.8);
    context.closePath();
  },
  cross: (context, x, y, size) => {
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
  },
};
