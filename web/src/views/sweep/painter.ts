// The painter of the parallel coordinates, in a worker. It keeps the scene, and paints when a part of it has changed.

export interface Scene {
  count: number; // of axes
  places: Float32Array; // line after line, its place on each axis from 0 to 1; not a number where it has no value
  shades: Uint8Array; // of each line, an index into colours
  passes: Uint8Array; // of each line
  colours: string[];
  faint: string; // of lines that do not pass
  frame: Frame;
}

/** Where the axes stand, in pixels of the style sheet. */
export interface Frame {
  width: number;
  height: number;
  left: number; // of the first axis
  step: number; // from one axis to the next
  top: number; // of an axis: the place 1
  bottom: number; // the place 0
  none: number; // where lines without a value go
  scale: number; // pixels of the screen in one of the style sheet
}

const TOGETHER = 20; // lines in one stroke

let context: OffscreenCanvasRenderingContext2D | null = null;
let scene: Partial<Scene> = {};
let ground: OffscreenCanvas | null = null; // all lines in faint: painted again only when they or their places change

onmessage = ({ data }: MessageEvent<Partial<Scene> & { canvas?: OffscreenCanvas }>) => {
  if (data.canvas) {
    context = data.canvas.getContext("2d");
    return;
  }
  scene = { ...scene, ...data };
  if (data.places || data.frame || data.faint) ground = null;
  if (context && isWhole(scene)) paint(context, scene);
  // The frame is shown first: what is told before that would be painted while it is still being worked on.
  requestAnimationFrame(() => postMessage("done"));
};

function isWhole(part: Partial<Scene>): part is Scene {
  return Boolean(part.places && part.passes && part.frame && part.colours && part.passes.length === part.shades?.length);
}

function paint(target: OffscreenCanvasRenderingContext2D, whole: Scene): void {
  const { frame, passes, shades } = whole;
  prepare(target, frame);
  const chosen = passes.reduce((sum, one) => sum + one, 0);
  if (chosen < passes.length) {
    ground ??= painted(whole);
    target.setTransform(1, 0, 0, 1, 0, 0);
    target.drawImage(ground, 0, 0);
    target.setTransform(frame.scale, 0, 0, frame.scale, 0, 0);
  }
  target.globalAlpha = opacity(chosen);
  const last = passes.length;
  for (let begin = 0; begin < last; ) {
    let end = begin;
    while (end < last && shades[end] === shades[begin]) end++; // the lines come in the order of their shades
    target.strokeStyle = whole.colours[shades[begin]!]!;
    stroke(target, whole, begin, end, (line) => passes[line] === 1);
    begin = end;
  }
}

function painted(whole: Scene): OffscreenCanvas {
  const { width, height, scale } = whole.frame;
  const canvas = new OffscreenCanvas(Math.round(width * scale), Math.round(height * scale));
  const target = canvas.getContext("2d")!;
  prepare(target, whole.frame);
  target.globalAlpha = opacity(whole.passes.length) / 2;
  target.strokeStyle = whole.faint;
  stroke(target, whole, 0, whole.passes.length, () => true);
  return canvas;
}

function prepare(target: OffscreenCanvasRenderingContext2D, { width, height, scale }: Frame): void {
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (target.canvas.width !== wide || target.canvas.height !== high) {
    target.canvas.width = wide;
    target.canvas.height = high;
  }
  target.setTransform(scale, 0, 0, scale, 0, 0);
  target.clearRect(0, 0, width, height);
  target.lineWidth = 1.2;
  target.lineJoin = "round";
}

/** Few lines can be strong; of many the dense places show. */
function opacity(lines: number): number {
  return Math.min(0.9, Math.max(0.12, 10 / Math.sqrt(lines + 1)));
}

function stroke(
  target: OffscreenCanvasRenderingContext2D,
  { places, count, frame }: Scene,
  begin: number,
  end: number,
  isWanted: (line: number) => boolean,
): void {
  const y = (part: number) => (Number.isNaN(part) ? frame.none : frame.bottom - part * (frame.bottom - frame.top));
  let together = 0;
  target.beginPath();
  for (let line = begin; line < end; line++) {
    if (!isWanted(line)) continue;
    const first = line * count;
    target.moveTo(frame.left, y(places[first]!));
    for (let axis = 1; axis < count; axis++) target.lineTo(frame.left + axis * frame.step, y(places[first + axis]!));
    if (++together % TOGETHER === 0) {
      target.stroke();
      target.beginPath();
    }
  }
  target.stroke();
}
