/** The style sheet's colours, as they are now. */
export class Palette {
  private readonly style: CSSStyleDeclaration;
  private readonly known = new Map<string, string>();

  constructor(element: Element) {
    this.style = getComputedStyle(element);
  }

  of(variable: string): string {
    let colour = this.known.get(variable);
    if (colour === undefined) this.known.set(variable, (colour = this.style.getPropertyValue(variable).trim()));
    return colour;
  }
}
