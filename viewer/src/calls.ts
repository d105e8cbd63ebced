// The calls of a rank in columns, laid out as they are drawn: a drawn row is one piece of every column, ordered by start, and its
// calls do not overlap.
import { readCallMetadata, readColumn, type RankData } from "./report";

/** A stack of calls: a lane's, or an extra one for calls of the lane that overlap without nesting. */
export interface Track {
  lane: number;
  extra: number;
  /** Number of its first row, and how many it has: one a depth. */
  row: number;
  depth: number;
  calls: number;
}

/** The first i in [from, to) with values[i] > limit, else `to`. Ascending values. */
export function firstAbove(values: Float64Array | Int32Array, limit: number, from: number, to: number): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** The same with >=. */
export function firstNotBelow(values: Float64Array | Int32Array, limit: number, from: number, to: number): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] >= limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

export class RankCalls {
  private metadata: Map<number, string> | null = null;
  private inside: Float64Array | null = null;

  private constructor(
    readonly run: number,
    readonly rank: number,
    readonly tracks: Track[],
    /** Row r holds the calls [rows[r], rows[r + 1]). */
    readonly rows: Uint32Array,
    readonly rowDepth: Uint32Array,
    readonly rowTrack: Uint32Array,
    readonly start: Float64Array,
    readonly end: Float64Array,
    readonly name: Uint32Array,
    /** The call around it; -1: none. Ascending within a row. */
    readonly parent: Int32Array,
    readonly awaiting: Float64Array | null,
    readonly gpu: Float64Array | null,
    /** Sums of durations and of awaiting before each call, for what many calls in one pixel add up to. */
    readonly sum: Float64Array,
    readonly awaitSum: Float64Array | null,
  ) {}

  get count(): number {
    return this.start.length;
  }

  static async read(run: number, rank: number, data: RankData): Promise<RankCalls> {
    const tracks: Track[] = [];
    const counts: number[] = [];
    const depths: number[] = [];
    const owners: number[] = [];
    for (const [lane, extra, byDepth] of data.tracks) {
      const calls = byDepth.reduce((sum, count) => sum + count, 0);
      byDepth.forEach((count, depth) => {
        counts.push(count);
        depths.push(depth);
        owners.push(tracks.length);
      });
      tracks.push({ lane, extra, row: counts.length - byDepth.length, depth: byDepth.length, calls });
    }
    const rows = new Uint32Array(counts.length + 1);
    counts.forEach((count, row) => (rows[row + 1] = rows[row] + count));
    const count = rows[counts.length];
    const column = (name: string) => readColumn(run, rank, name, count);
    const [gap, duration, names, step, awaiting, gpu] = await Promise.all(
      ["gap", "duration", "name", "parent", "await", "gpu"].map(column),
    );
    const start = gap!;
    const end = duration!;
    const sum = new Float64Array(count + 1);
    const parent = new Int32Array(count);
    for (let row = 0; row < counts.length; row++) {
      const above = depths[row] > 0 ? rows[row - 1] : -1;
      let clock = 0;
      let place = 0;
      for (let i = rows[row]; i < rows[row + 1]; i++) {
        sum[i + 1] = sum[i] + end[i];
        start[i] += clock;
        clock = end[i] += start[i];
        place += step![i];
        parent[i] = above < 0 ? -1 : above + place;
      }
    }
    let awaitSum: Float64Array | null = null;
    if (awaiting) {
      awaitSum = new Float64Array(count + 1);
      for (let i = 0; i < count; i++) awaitSum[i + 1] = awaitSum[i] + awaiting[i];
    }
    return new RankCalls(
      run, rank, tracks, rows, Uint32Array.from(depths), Uint32Array.from(owners), start, end, Uint32Array.from(names!), parent,
      awaiting, gpu, sum, awaitSum,
    );
  }

  /** The row that a call is in. */
  rowOf(call: number): number {
    let low = 0;
    let high = this.rows.length - 1;
    while (low + 1 < high) {
      const middle = (low + high) >>> 1;
      if (this.rows[middle] <= call) low = middle;
      else high = middle;
    }
    return low;
  }

  trackOf(call: number): Track {
    return this.tracks[this.rowTrack[this.rowOf(call)]];
  }

  /** The call of a row that is open at a time, or the nearest one within `slack`; -1: none. */
  at(row: number, time: number, slack: number): number {
    const to = this.rows[row + 1];
    const next = firstAbove(this.start, time, this.rows[row], to);
    let best = -1;
    let distance = slack;
    for (const call of [next, next - 1]) {
      if (call < this.rows[row] || call >= to) continue;
      const away = Math.max(0, this.start[call] - time, time - this.end[call]);
      if (away <= distance) {
        best = call;
        distance = away;
      }
    }
    return best;
  }

  /** The calls directly inside a call: [from, to). */
  children(call: number): [number, number] {
    const row = this.rowOf(call);
    const track = this.tracks[this.rowTrack[row]];
    if (row + 1 >= track.row + track.depth) return [0, 0];
    const from = this.rows[row + 1];
    const to = this.rows[row + 2];
    return [firstNotBelow(this.parent, call, from, to), firstAbove(this.parent, call, from, to)];
  }

  /** ns in a call that no call inside it covers. */
  own(call: number): number {
    const [from, to] = this.children(call);
    return this.end[call] - this.start[call] - (this.sum[to] - this.sum[from]);
  }

  /** ns in the calls directly inside each call. */
  get insides(): Float64Array {
    if (!this.inside) {
      this.inside = new Float64Array(this.count);
      for (let i = 0; i < this.count; i++) {
        if (this.parent[i] >= 0) this.inside[this.parent[i]] += this.end[i] - this.start[i];
      }
    }
    return this.inside;
  }

  /** JSON that the run attached to a call, if any. */
  metadataOf(call: number): string | undefined {
    this.metadata ??= readCallMetadata(this.run, this.rank);
    return this.metadata.get(call);
  }
}
