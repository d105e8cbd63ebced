// What the writer of the page put into it (src/formats/html_report.c), as it stands there. Times are ns from the origin of
// the run unless said otherwise; null: not known.

/** What a sampler saw of a thread: inside of which region (null: of none), in which function, how often, and what time in ns that stands for. */
export type SampleRow = [
  rank: number, thread: string, region: string | null, name: string, place: string, samples: number, time: number, cpu: number,
];

export interface Options {
  /** By run; missing where no run has any. */
  samples?: SampleRow[][];
  /** Pages about each of the runs, and where they are. */
  links?: [title: string, href: string][];
  sort?: string;
  columns?: string[];
  scaling?: "strong" | "weak" | "both";
  /** False: tables only. */
  charts?: boolean;
  /** What the runs differ in: axes of the scaling charts, with one number a run; the first one is shown. */
  axes?: { name: string; values: number[] }[];
}

export type Source = [file: string | null, line: number | null, text: string | null, tags: string[]];

/** One region on one rank. `first` and `last` are the durations of the call that starts first and the one that ends last. */
export type RegionRow = [
  name: number, rank: number, calls: number, total: number, min: number, max: number, mean: number | null, m2: number | null,
  first: number | null, last: number | null, start: number | null, end: number | null, p50: number | null, p95: number | null,
  p99: number | null, own: number | null, awaiting: number | null, gpu: number | null,
  source: Source | 0 | null,
];

export type ThreadRow = [
  rank: number, index: number, name: string | null, ident: string, nativeId: string, daemon: boolean, start: number | null,
  end: number | null, cpu: number | null,
];

export type TaskRow = [
  rank: number, index: number, kind: string | null, name: string | null, coroutine: string | null, thread: number,
  created: number | null, done: number | null, steps: number, running: number, suspended: number,
  makerThread: number, makerTask: number,
];

export type Value = string | number | boolean | null | string[];

export interface RunData {
  name: string;
  origin: string;
  start: number;
  end: number;
  calls: boolean;
  tracked: boolean;
  nested: boolean;
  clamped: boolean;
  metadata: [string, Value][];
  names: string[];
  regions: RegionRow[];
  /** What the ranks are, where it is known. A pid of 0: not known. */
  processes: [rank: number, pid: number, name: string | null][];
  threads: ThreadRow[];
  tasks: TaskRow[];
  /** Sums by call path, where the page has no calls to make them from. A parent of -1: a root. */
  nodes?: [name: number, parent: number][];
  paths?: [node: number, rank: number, calls: number, total: number, own: number | null, covered: number | null][];
  /** Calls on a thread, its tasks' included, and the time in which it was inside one. */
  usage: [rank: number, thread: number, calls: number, covered: number | null][];
}

export interface ReportData {
  exporter: string;
  options: Options;
  runs: RunData[];
}

export interface RankData {
  tracks: [lane: number, extra: number, callsByDepth: number[]][];
}

// The parts of the page by run, rank and column; "": the tracks of the rank.
let parts: Map<string, HTMLElement> | null = null;

function partsOfPage(): Map<string, HTMLElement> {
  if (!parts) {
    parts = new Map();
    for (const element of document.querySelectorAll<HTMLElement>("script[data-run]")) {
      const { run, rank, column } = element.dataset;
      parts.set(`${run}/${rank}/${column ?? ""}`, element);
    }
  }
  return parts;
}

function take(element: Element): string {
  const text = element.textContent ?? "";
  element.remove(); // its memory is that of all calls
  return text;
}

function takePart(run: number, rank: number, column: string): string | null {
  const key = `${run}/${rank}/${column}`;
  const element = partsOfPage().get(key);
  if (!element) return null;
  partsOfPage().delete(key);
  return take(element);
}

export function readReport(): ReportData {
  return JSON.parse(take(document.getElementById("sp-report")!)) as ReportData;
}

/** The ranks of a run that have calls in the page. */
export function readRanks(run: number): { rank: number; data: RankData }[] {
  const ranks = [...partsOfPage().keys()].map((key) => key.split("/")).filter(([of, , column]) => Number(of) === run && column === "");
  return ranks.map(([, rank]) => ({ rank: Number(rank), data: JSON.parse(takePart(run, Number(rank), "")!) as RankData }));
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (native) return native(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack(line: string, into: Float64Array, at: number): Promise<void> {
  const [count, planes, text] = line.split(" ");
  const n = Number(count);
  if (planes === "0") return;
  const bytes = await inflate(fromBase64(text));
  for (let plane = 0, scale = 1; plane < Number(planes); plane++, scale *= 256) {
    const first = plane * n;
    for (let i = 0; i < n; i++) into[at + i] += bytes[first + i] * scale;
  }
}

/** A column over the calls of a rank; null if the run does not have it. */
export async function readColumn(run: number, rank: number, column: string, count: number): Promise<Float64Array | null> {
  const text = takePart(run, rank, column);
  if (text === null) return null;
  const values = new Float64Array(count);
  const blocks: Promise<void>[] = [];
  let at = 0;
  for (const line of text.split("\n")) {
    if (line === "") continue;
    blocks.push(unpack(line, values, at));
    at += parseInt(line, 10);
  }
  await Promise.all(blocks);
  return values;
}

/** JSON of calls by their place; parsed when a call is looked at. */
export function readCallMetadata(run: number, rank: number): Map<number, string> {
  const found = new Map<number, string>();
  for (const line of (takePart(run, rank, "metadata") ?? "").split("\n")) {
    const space = line.indexOf(" ");
    if (space > 0) found.set(Number(line.slice(0, space)), line.slice(space + 1));
  }
  return found;
}
