// Rows of calls as pixels. A frame costs as much as it has pixels, not calls: what falls into one pixel is found by a search
// and drawn as one cell, whose strength says how much of the pixel is covered.
import { firstAbove, type RankCalls } from "./calls";
import { mix, type Palette, type Pixel, type Scheme } from "./colour";
import type { Crowd } from "./crowd";

/** A call that is wide enough for its name. In pixels of the canvas. */
export interface Label {
  calls: RankCalls;
  call: number;
  left: number;
  right: number;
  top: number;
  /** Whether most of it awaits: then it is pale. */
  pale: boolean;
}

export interface Window {
  from: number;
  /** Pixels of the canvas a ns. */
  scale: number;
}

const LABEL_WIDTH = 26;

export class Raster {
  readonly labels: Label[] = [];
  private image: ImageData;
  private pixels: Uint32Array;

  constructor(private readonly context: CanvasRenderingContext2D, readonly width: number, readonly height: number) {
    this.image = context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  begin(scheme: Scheme): void {
    this.pixels.fill(scheme.background);
    this.labels.length = 0;
  }

  end(): void {
    this.context.putImageData(this.image, 0, 0);
  }

  band(top: number, height: number, colour: Pixel): void {
    const from = Math.max(0, top) * this.width;
    const to = Math.min(this.height, top + height) * this.width;
    if (to > from) this.pixels.fill(colour, from, to);
  }

  area(left: number, right: number, top: number, height: number, colour: Pixel): void {
    const x0 = Math.max(0, left);
    const x1 = Math.min(this.width, right);
    if (x1 <= x0) return;
    for (let y = Math.max(0, top); y < Math.min(this.height, top + height); y++) this.pixels.fill(colour, y * this.width + x0, y * this.width + x1);
  }

  /** One row of calls. `marks`: how many calls before each one match the search; cells that hold one show it. */
  row(
    calls: RankCalls, row: number, top: number, height: number, view: Window, palette: Palette, background: Pixel,
    shown: Uint8Array | null, marks: Int32Array | null, labels: boolean,
  ): void {
    const { start, end, name, awaiting, sum, awaitSum } = calls;
    const to = calls.rows[row + 1];
    const last = view.from + this.width / view.scale;
    let i = firstAbove(end, view.from, calls.rows[row], to);
    while (i < to && start[i] < last) {
      const left = (start[i] - view.from) * view.scale;
      const right = (end[i] - view.from) * view.scale;
      if (right - left >= 2) {
        const awaits = awaiting && end[i] > start[i] ? Math.min(1, awaiting[i] / (end[i] - start[i])) : 0;
        const x0 = Math.max(0, Math.round(left));
        const gap = right - left >= 4 ? 1 : 0;
        const x1 = Math.min(this.width, Math.max(Math.round(right) - gap, x0 + 1));
        this.block(x0, x1, top, height, palette.solid[name[i]], palette.pale[name[i]], palette.hatch[name[i]], awaits);
        if (labels && x1 - x0 >= LABEL_WIDTH) this.labels.push({ calls, call: i, left: x0, right: x1, top, pale: awaits > 0.5 });
        i++;
        continue;
      }
      const x = Math.max(0, Math.floor(left));
      const next = gallop(start, view.from + (x + 1) / view.scale, i + 1, to);
      // The last call that starts in this pixel may reach out of it: then it is drawn on its own.
      const wide = next - 1 > i && (end[next - 1] - start[next - 1]) * view.scale >= 2 ? 1 : 0;
      const stop = next - wide;
      if (x < this.width) {
        const covered = sum[stop] - sum[i];
        const chosen = this.choose(calls, i, stop, shown, marks);
        const awaits = awaitSum && covered > 0 ? Math.min(1, (awaitSum[stop] - awaitSum[i]) / covered) : 0;
        const strength = Math.max(0.3, Math.min(1, covered * view.scale));
        const under = (colour: Pixel) => mix(background, colour, strength);
        const id = name[chosen];
        this.block(x, x + 1, top, height, under(palette.solid[id]), under(palette.pale[id]), under(palette.hatch[id]), awaits);
      }
      i = stop;
    }
  }

  /** The call that stands for all of a pixel: one that was searched for, else the longest, where there are few. */
  private choose(calls: RankCalls, from: number, to: number, shown: Uint8Array | null, marks: Int32Array | null): number {
    if (shown && marks && marks[to] > marks[from]) {
      let low = from;
      let high = to;
      while (low + 1 < high) {
        const middle = (low + high) >>> 1;
        if (marks[middle] > marks[from]) high = middle;
        else low = middle;
      }
      return low;
    }
    if (to - from > 16) return (from + to) >>> 1;
    let best = from;
    for (let i = from + 1; i < to; i++) {
      if (calls.end[i] - calls.start[i] > calls.end[best] - calls.start[best]) best = i;
    }
    return best;
  }

  /** A block whose solid part is the share of its time that it ran, and whose hatched part the rest. */
  private block(x0: number, x1: number, top: number, height: number, solid: Pixel, pale: Pixel, hatch: Pixel, awaits: number): void {
    let bottom = top + height;
    let solidBottom = top + Math.round(height * (1 - awaits));
    if (awaits > 0 && solidBottom === bottom && awaits > 0.02) solidBottom--;
    if (solidBottom === top && awaits < 0.98) solidBottom++;
    bottom = Math.min(bottom, this.height);
    for (let y = Math.max(0, top); y < bottom; y++) {
      const line = y * this.width;
      if (y < solidBottom) {
        this.pixels.fill(solid, line + x0, line + x1);
        continue;
      }
      this.pixels.fill(pale, line + x0, line + x1);
      for (let x = x0 + ((12 - ((x0 + y) % 6)) % 6); x < x1; x += 6) {
        this.pixels[line + x] = hatch;
        if (x + 1 < x1) this.pixels[line + x + 1] = hatch;
      }
    }
  }

  /** How many lanes are inside a call, as an area: the solid part of it runs. */
  crowd(crowd: Crowd, top: number, height: number, view: Window, solid: Pixel, pale: Pixel): void {
    const peak = Math.max(1, crowd.peak);
    const bottom = top + height;
    for (let x = 0; x < this.width; x++) {
      const time = view.from + (x + 0.5) / view.scale;
      const open = crowd.at(time);
      if (open === 0) continue;
      const tall = Math.max(1, Math.round((open / peak) * height));
      const runs = Math.round(tall * crowd.runningShare(time));
      for (let y = Math.max(0, bottom - tall); y < Math.min(this.height, bottom); y++) {
        this.pixels[y * this.width + x] = y >= bottom - runs ? solid : pale;
      }
    }
  }
}


/** The first i in [from, to) with values[i] >= limit, searched from `from` on: it is near as a rule. */
function gallop(values: Float64Array, limit: number, from: number, to: number): number {
  let step = 1;
  let low = from;
  while (low + step < to && values[low + step] < limit) {
    low += step;
    step *= 2;
  }
  let high = Math.min(to, low + step);
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
