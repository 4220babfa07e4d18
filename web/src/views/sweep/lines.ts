// Hands the lines of the parallel coordinates to their painter, which has a thread of its own: five thousand lines take
// a browser without a graphics card 50 milliseconds, and the pointer must not wait for them.
import Painter from "./painter?worker";
import type { Scene } from "./painter";

export class Lines {
  private readonly painter = new Painter();
  private waiting: Partial<Scene> | null = null;
  private isBusy = false;

  /** The canvas is the painter's from now on. */
  constructor(canvas: HTMLCanvasElement) {
    const offscreen = canvas.transferControlToOffscreen();
    this.painter.onmessage = () => {
      this.isBusy = false;
      this.send();
    };
    this.painter.postMessage({ canvas: offscreen }, [offscreen]);
  }

  /** Paint with this changed. What comes faster than it can be painted is painted once. */
  show(part: Partial<Scene>): void {
    if (!this.waiting) queueMicrotask(() => this.send()); // parts that change together go together
    this.waiting = { ...this.waiting, ...part };
  }

  close(): void {
    this.painter.terminate();
  }

  private send(): void {
    if (this.isBusy || !this.waiting) return;
    this.painter.postMessage(this.waiting);
    this.waiting = null;
    this.isBusy = true;
  }
}
