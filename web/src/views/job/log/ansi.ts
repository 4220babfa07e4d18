// Lines with terminal colours as pieces of text with classes. ansi_up reads the colours; its HTML is not used.
import { AnsiUp } from "ansi_up";

export interface Span {
  text: string;
  look: string; // classes
}

interface Colour {
  rgb: [number, number, number];
  class_name: string; // `ansi-red`, or `truecolor`
}

interface Packet {
  kind: number;
  text: string;
}

interface Look {
  bold: boolean;
  faint: boolean;
  italic: boolean;
  underline: boolean;
  fg: Colour | null;
  bg: Colour | null;
}

// The part of ansi_up that reads. Its types hide it; package.json pins the version that has it like this.
interface Reader {
  append_buffer(text: string): void;
  get_next_packet(): Packet;
  process_ansi(packet: Packet): void;
  with_state(packet: Packet): Look;
  ansi_colors: Colour[][];
}

// Kinds of packets
const END = 0;
const TEXT = 1;
const INCOMPLETE = 2;
const COLOURS = 5;

// Everything that a terminal would act on and not show: titles, links and the like with what they carry, the
// sequences that move the cursor, and single control characters. Colours (`ESC [ ... m`) stay for the reader.
const CARRIERS = /(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)?/g;
const MOVES = /(?:\x1b\[(?![\d;]*m)|\x9b)[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]?/g;
const OTHERS = /\x1b(?!\[)[\x20-\x2f]*[\x30-\x7e]?/g;
const CONTROLS = /[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]/g;

/** Lines in their order: a colour goes on until it is taken back. */
export function spansOf(lines: readonly string[]): Span[][] {
  const reader = new AnsiUp() as unknown as Reader;
  return lines.map((line) => spans(reader, withoutControls(line)));
}

function withoutControls(line: string): string {
  return line.replace(CARRIERS, "").replace(MOVES, "").replace(OTHERS, "").replace(CONTROLS, "");
}

function spans(reader: Reader, line: string): Span[] {
  if (!line) return [];
  const found: Span[] = [];
  reader.append_buffer(line);
  for (;;) {
    const packet = reader.get_next_packet();
    if (packet.kind === END) return found;
    if (packet.kind === INCOMPLETE) {
      // A sequence that the line's end cuts off says nothing to the next line.
      (reader as unknown as { _buffer: string })._buffer = "";
      return found;
    }
    if (packet.kind === COLOURS) reader.process_ansi(packet);
    else if (packet.kind === TEXT) found.push({ text: packet.text, look: classes(reader, reader.with_state(packet)) });
  }
}

function classes(reader: Reader, look: Look): string {
  const found = [];
  if (look.bold) found.push("ansi-bold");
  if (look.faint) found.push("ansi-faint");
  if (look.italic) found.push("ansi-italic");
  if (look.underline) found.push("ansi-underline");
  if (look.fg) found.push(`${named(reader, look.fg)}-fg`);
  if (look.bg) found.push(`${named(reader, look.bg)}-bg`);
  return found.join(" ");
}

/** One of the sixteen: only of those we know that they can be read on both grounds. */
function named(reader: Reader, colour: Colour): string {
  if (colour.class_name !== "truecolor") return colour.class_name;
  let nearest = colour;
  let least = Infinity;
  for (const one of reader.ansi_colors.flat()) {
    const away = one.rgb.reduce((sum, value, place) => sum + (value - colour.rgb[place]!) ** 2, 0);
    if (away < least) [least, nearest] = [away, one];
  }
  return nearest.class_name;
}
