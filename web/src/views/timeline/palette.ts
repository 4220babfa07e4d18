/** The style sheet's colours, as they are now. */
export class Palette {
  private readonly style: CSSStyleDeclaration;
  private readonly known = new Map<string, string>();
  private readonly patterns = new Map<string, CanvasPattern>();

  constructor(element: Element) {
    this.style = getComputedStyle(element);
  }

  of(variable: string): string {
    let colour = this.known.get(variable);
    if (colour === undefined) this.known.set(variable, (colour = this.style.getPropertyValue(variable).trim()));
    return colour;
  }

  /** Stripes of a colour, with nothing between them. */
  stripes(context: CanvasRenderingContext2D, variable: string): CanvasPattern {
    let pattern = this.patterns.get(variable);
    if (!pattern) this.patterns.set(variable, (pattern = context.createPattern(stripe(this.of(variable)), "repeat")!));
    return pattern;
  }
}

const STRIPE = 7; // pixels from one to the next

function stripe(colour: string): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  tile.width = tile.height = STRIPE;
  const context = tile.getContext("2d")!;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  for (const shift of [-STRIPE, 0, STRIPE]) {
    context.moveTo(shift - 1, STRIPE + 1);
    context.lineTo(shift + STRIPE + 1, -1);
  }
  context.stroke();
  return tile;
}
