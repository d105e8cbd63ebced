// How many lanes are inside a call over time: what a lane of many tasks, and the overview, show.
import { firstAbove, type RankCalls } from "./calls";
import type { Lane } from "./model";

const BINS = 4096;

export class Crowd {
  /** At once, at most. */
  readonly peak: number;

  private constructor(
    private readonly starts: Float64Array,
    private readonly ends: Float64Array,
    private readonly from: number,
    private readonly binWidth: number,
    /** ns in calls, and ns of these not awaiting, in each bin. */
    private readonly inside: Float64Array,
    private readonly running: Float64Array,
  ) {
    let most = 0;
    for (let s = 0, e = 0; s < starts.length; s++) {
      while (e < ends.length && ends[e] <= starts[s]) e++;
      if (s + 1 - e > most) most = s + 1 - e;
    }
    this.peak = most;
  }

  static of(lanes: Iterable<Lane>, from: number, to: number): Crowd {
    const pieces: [RankCalls, number, number][] = [];
    let count = 0;
    for (const lane of lanes) {
      for (const track of lane.tracks) {
        if (track.extra > 0 || track.depth === 0) continue;
        const calls = lane.calls!;
        pieces.push([calls, calls.rows[track.row], calls.rows[track.row + 1]]);
        count += calls.rows[track.row + 1] - calls.rows[track.row];
      }
    }
    const starts = new Float64Array(count);
    const ends = new Float64Array(count);
    const bins = new Bins(from, to);
    let at = 0;
    for (const [calls, first, last] of pieces) {
      starts.set(calls.start.subarray(first, last), at);
      ends.set(calls.end.subarray(first, last), at);
      at += last - first;
      for (let i = first; i < last; i++) {
        const length = calls.end[i] - calls.start[i];
        const awaiting = calls.awaiting ? Math.min(calls.awaiting[i], length) : 0;
        bins.add(calls.start[i], calls.end[i], length > 0 ? 1 - awaiting / length : 1);
      }
    }
    const [inside, running] = bins.finish();
    return new Crowd(starts.sort(), ends.sort(), from, bins.width, inside, running);
  }

  /** Lanes inside a call at a time. */
  at(time: number): number {
    return firstAbove(this.starts, time, 0, this.starts.length) - firstAbove(this.ends, time, 0, this.ends.length);
  }

  /** Of those, the share that runs; what is known of a stretch around the time. */
  runningShare(time: number): number {
    const bin = Math.min(BINS - 1, Math.max(0, Math.floor((time - this.from) / this.binWidth)));
    return this.inside[bin] > 0 ? this.running[bin] / this.inside[bin] : 1;
  }
}

/** Intervals summed into bins: the two at the ends exactly, what is between as a difference. */
class Bins {
  readonly width: number;
  private readonly inside = new Float64Array(BINS);
  private readonly running = new Float64Array(BINS);
  private readonly insideStep = new Float64Array(BINS + 1);
  private readonly runningStep = new Float64Array(BINS + 1);

  constructor(private readonly from: number, to: number) {
    this.width = Math.max(to - from, 1) / BINS;
  }

  add(start: number, end: number, share: number): void {
    const first = this.bin(start);
    const last = this.bin(end);
    if (first === last) {
      this.inside[first] += end - start;
      this.running[first] += (end - start) * share;
      return;
    }
    const head = this.from + (first + 1) * this.width - start;
    const tail = end - (this.from + last * this.width);
    this.inside[first] += head;
    this.running[first] += head * share;
    this.inside[last] += tail;
    this.running[last] += tail * share;
    this.insideStep[first + 1] += this.width;
    this.insideStep[last] -= this.width;
    this.runningStep[first + 1] += this.width * share;
    this.runningStep[last] -= this.width * share;
  }

  finish(): [Float64Array, Float64Array] {
    let inside = 0;
    let running = 0;
    for (let bin = 0; bin < BINS; bin++) {
      this.inside[bin] += inside += this.insideStep[bin];
      this.running[bin] += running += this.runningStep[bin];
    }
    return [this.inside, this.running];
  }

  private bin(time: number): number {
    return Math.min(BINS - 1, Math.max(0, Math.floor((time - this.from) / this.width)));
  }
}
