// A run as the views see it: regions with their numbers and colours, threads, tasks, and the tree of lanes.
import { RankCalls, type Track } from "./calls";
import { regionColour } from "./colour";
import { visible } from "./format";
import { readRanks, type RegionRow, type RunData, type Source, type Value } from "./report";

/** A region over all ranks. Times in ns; null: not known. */
export interface Region {
  id: number;
  name: string;
  colour: number;
  source: Source | null;
  ranks: number;
  calls: number;
  total: number;
  own: number | null;
  awaiting: number | null;
  gpu: number | null;
  min: number;
  max: number;
  mean: number | null;
  std: number | null;
  p50: number | null;
  p95: number | null;
  p99: number | null;
  first: number | null;
  last: number | null;
  start: number | null;
  imbalance: number | null;
  /** Its largest total on a rank: what the others wait for. */
  mostPerRank: number;
}

export interface Thread {
  rank: number;
  index: number;
  name: string;
  nativeId: string;
  daemon: boolean;
  start: number | null;
  end: number | null;
  /** From its start to its end, or to the end of the run. */
  wall: number | null;
  cpu: number | null;
  /** The processor's share of the wall time; unknown where some of the processor time is from before the run. */
  share: number | null;
  calls: number;
  /** In which it was inside a region. */
  covered: number | null;
  tasks: number;
}

export interface Task {
  rank: number;
  index: number;
  kind: string;
  name: string;
  coroutine: string;
  thread: number;
  threadName: string;
  created: number | null;
  done: number | null;
  wall: number | null;
  steps: number;
  running: number;
  suspended: number;
  calls: number;
  /** The task, or else the thread, that made it; "": not known. */
  maker: string;
}

export interface Lane {
  key: string;
  kind: "rank" | "thread" | "task" | "tasks";
  level: number;
  label: string;
  rank: number;
  parent: Lane | null;
  children: Lane[];
  open: boolean;
  calls: RankCalls | null;
  tracks: Track[];
  /** Rows that its calls need, and how many of them are drawn. */
  depth: number;
  shown: number;
  thread: Thread | null;
  task: Task | null;
}

/** Levels of a lane that are drawn before somebody asks for the rest. */
export const LEVELS_SHOWN = 12;
const TASKS_OPEN = 40;

export interface Run {
  data: RunData;
  index: number;
  names: string[];
  regions: Region[];
  byId: (Region | undefined)[];
  colours: Uint32Array;
  threads: Thread[];
  tasks: Task[];
  ranks: RankCalls[];
  lanes: Lane[];
  callCount: number;
  /** The times that the timeline shows at first: all of it. */
  from: number;
  to: number;
  metadata: Map<string, Value>;
}

function sourceOf(rows: RegionRow[]): Source | null {
  for (const row of rows) if (row[18]) return row[18] as Source;
  return null;
}

function add(rows: RegionRow[], column: number): number | null {
  let sum = 0;
  for (const row of rows) {
    if (row[column] === null) return null;
    sum += row[column] as number;
  }
  return sum;
}

/** The value of the row whose `key` is least or greatest. */
function pick(rows: RegionRow[], value: number, key: number, sign: 1 | -1): number | null {
  let best: RegionRow | null = null;
  for (const row of rows) {
    if (row[key] !== null && (!best || sign * (row[key] as number) < sign * (best[key] as number))) best = row;
  }
  return best ? (best[value] as number | null) : null;
}

/** Standard deviation over all ranks, from each rank's mean and sum of squares. */
function deviation(rows: RegionRow[], calls: number, mean: number): number | null {
  let squares = 0;
  for (const row of rows) {
    if (row[6] === null || row[7] === null) return null;
    squares += row[7] + row[2] * (row[6] - mean) ** 2;
  }
  return calls > 0 ? Math.sqrt(squares / calls) : null;
}

function makeRegion(id: number, name: string, rows: RegionRow[]): Region {
  const calls = rows.reduce((sum, row) => sum + row[2], 0);
  const total = rows.reduce((sum, row) => sum + row[3], 0);
  const used = rows.filter((row) => row[2] > 0);
  const one = rows.length === 1 ? rows[0] : null;
  const largest = Math.max(...rows.map((row) => row[3]));
  return {
    id, name, colour: 0, source: sourceOf(rows), ranks: rows.length, calls, total,
    own: add(rows, 15), awaiting: add(rows, 16), gpu: add(rows.filter((row) => row[17] !== null), 17) || null,
    min: used.length ? Math.min(...used.map((row) => row[4])) : 0,
    max: used.length ? Math.max(...used.map((row) => row[5])) : 0,
    mean: calls ? total / calls : null,
    std: deviation(used, calls, calls ? total / calls : 0),
    p50: one ? one[12] : null, p95: one ? one[13] : null, p99: one ? one[14] : null,
    first: pick(used, 8, 10, 1), last: pick(used, 9, 11, -1), start: pick(used, 10, 10, 1),
    imbalance: rows.length > 1 && total > 0 ? largest / (total / rows.length) : null,
    mostPerRank: largest,
  };
}

function makeRegions(data: RunData): { regions: Region[]; byId: (Region | undefined)[]; colours: Uint32Array } {
  const rows = new Map<number, RegionRow[]>();
  for (const row of data.regions) {
    const known = rows.get(row[0]);
    if (known) known.push(row);
    else rows.set(row[0], [row]);
  }
  const regions = [...rows].map(([id, own]) => makeRegion(id, data.names[id], own));
  const colours = new Uint32Array(data.names.length);
  const byId: (Region | undefined)[] = new Array(data.names.length);
  const byWeight = [...regions].sort((a, b) => (b.own ?? b.total) - (a.own ?? a.total));
  byWeight.forEach((region, place) => {
    region.colour = colours[region.id] = regionColour(place);
    byId[region.id] = region;
  });
  return { regions, byId, colours };
}

/** Exact percentiles of a region's durations over several ranks, interpolated as numpy does. */
export function percentiles(run: Run, id: number, shares: number[]): (number | null)[] {
  const values: number[] = [];
  for (const calls of run.ranks) {
    for (let i = 0; i < calls.count; i++) if (calls.name[i] === id) values.push(calls.end[i] - calls.start[i]);
  }
  if (values.length === 0) return shares.map(() => null);
  const sorted = Float64Array.from(values).sort();
  return shares.map((share) => {
    const place = share * (sorted.length - 1);
    const low = Math.floor(place);
    return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (place - low);
  });
}

// The two clocks are not read at the same moment, so that a thread that always ran may have a little more than its wall time.
const CLOCKS_DIFFER = 1.05;

function processorShare(cpu: number | null, wall: number | null): number | null {
  return cpu === null || !wall || cpu > wall * CLOCKS_DIFFER ? null : Math.min(1, cpu / wall);
}

function makeThreads(data: RunData): Thread[] {
  const usage = new Map(data.usage.map((row) => [`${row[0]}/${row[1]}`, row]));
  return data.threads.map(([rank, index, name, , nativeId, daemon, start, end, cpu]) => {
    const used = usage.get(`${rank}/${index}`);
    const wall = start === null ? null : (end ?? Math.max(data.end, start)) - start;
    return {
      rank, index, name: name ?? `thread ${index}`, nativeId, daemon, start, end, cpu, wall, share: processorShare(cpu, wall),
      calls: used ? used[2] : 0, covered: used ? used[3] : 0, tasks: 0,
    };
  });
}

function makeTasks(data: RunData, threads: Thread[]): Task[] {
  const owners = new Map(threads.map((thread) => [`${thread.rank}/${thread.index}`, thread]));
  const names = new Map(data.tasks.map((row) => [`${row[0]}/${row[1]}`, row[3] ?? `task ${row[1]}`]));
  return data.tasks.map(([rank, index, kind, name, coroutine, thread, created, done, steps, running, suspended, makerThread, makerTask]) => {
    const owner = owners.get(`${rank}/${thread}`);
    if (owner) owner.tasks++;
    return {
      rank, index, kind: kind ?? "task", name: name ?? `task ${index}`, coroutine: coroutine ?? "", thread,
      threadName: owner ? owner.name : thread >= 0 ? `thread ${thread}` : "", created, done,
      wall: created === null ? null : (done ?? Math.max(data.end, created)) - created, steps, running, suspended, calls: 0,
      maker: makerTask >= 0 ? (names.get(`${rank}/${makerTask}`) ?? "") : (owners.get(`${rank}/${makerThread}`)?.name ?? ""),
    };
  });
}

function newLane(kind: Lane["kind"], key: string, label: string, rank: number, parent: Lane | null): Lane {
  const lane: Lane = {
    key, kind, level: parent ? parent.level + 1 : 0, label: visible(label), rank, parent, children: [], open: true, calls: null,
    tracks: [], depth: 0, shown: 0, thread: null, task: null,
  };
  parent?.children.push(lane);
  return lane;
}

/** The part of a coroutine's qualified name that tells most. */
const shortName = (coroutine: string): string => coroutine.slice(coroutine.lastIndexOf(".") + 1);

function taskLabel(task: Task): string {
  const short = shortName(task.coroutine);
  return short && short !== task.name ? `${task.name} (${short})` : task.name;
}

interface RankParts {
  rank: number;
  calls: RankCalls | null;
  threads: Thread[];
  tasks: Task[];
}

/** What each rank has, by rank. */
function partsByRank(run: Run): RankParts[] {
  const parts = new Map<number, RankParts>();
  const of = (rank: number): RankParts => {
    let part = parts.get(rank);
    if (!part) parts.set(rank, (part = { rank, calls: null, threads: [], tasks: [] }));
    return part;
  };
  for (const calls of run.ranks) of(calls.rank).calls = calls;
  for (const thread of run.threads) of(thread.rank).threads.push(thread);
  for (const task of run.tasks) of(task.rank).tasks.push(task);
  return [...parts.values()].sort((a, b) => a.rank - b.rank);
}

/** The lanes of a rank: threads in order of their numbers, each with its tasks in order of their creation. */
function makeRankLanes(run: Run, { rank, calls, threads: known, tasks: made }: RankParts, parent: Lane | null): Lane[] {
  const byIndex = new Map(known.map((thread) => [thread.index, thread]));
  const threads = new Map<number, Lane>();
  const tasks = new Map<number, Lane>();
  const top: Lane[] = [];
  const threadLane = (index: number): Lane => {
    let lane = threads.get(index);
    if (!lane) {
      const thread = byIndex.get(index) ?? null;
      const label = index < 0 ? (run.data.tracked ? "unknown thread" : `rank ${rank}`) : thread ? thread.name : `thread ${index}`;
      lane = newLane("thread", `${rank}/thread/${index}`, label, rank, parent);
      lane.thread = thread;
      threads.set(index, lane);
      top.push(lane);
    }
    return lane;
  };
  for (const thread of known) threadLane(thread.index);
  const owned = new Map<Lane, Lane[]>();
  const taskLane = (index: number, task: Task | null): Lane => {
    const lane = newLane("task", `${rank}/task/${index}`, task ? taskLabel(task) : `task ${index}`, rank, null);
    lane.task = task;
    const owner = threadLane(task ? task.thread : -1);
    const list = owned.get(owner);
    if (list) list.push(lane);
    else owned.set(owner, [lane]);
    tasks.set(index, lane);
    return lane;
  };
  for (const task of made) taskLane(task.index, task);
  for (const track of calls?.tracks ?? []) {
    const lane = track.lane < 0 ? threadLane(track.lane === -1 ? -1 : -2 - track.lane) : (tasks.get(track.lane) ?? taskLane(track.lane, null));
    lane.calls = calls;
    lane.tracks.push(track);
    lane.depth += track.depth;
    if (lane.task) lane.task.calls += track.calls;
  }
  for (const [owner, list] of owned) adopt(owner, list);
  for (const lane of [...threads.values(), ...tasks.values()]) lane.shown = Math.min(lane.depth, LEVELS_SHOWN);
  top.sort((a, b) => Number(a.key.split("/")[2]) - Number(b.key.split("/")[2]));
  if (parent) parent.children.sort((a, b) => Number(a.key.split("/")[2]) - Number(b.key.split("/")[2]));
  return top;
}

/** "server.h5 (rank 1, pid 4711)", as far as it is known. */
function rankLabel(data: RunData, rank: number): string {
  const [, pid, name] = data.processes.find((process) => process[0] === rank) ?? [rank, 0, null];
  const number = `rank ${rank}${pid ? `, pid ${pid}` : ""}`;
  return name ? `${name} (${number})` : number;
}

/** One task is shown below its thread, more of them below a lane that sums them up. */
function adopt(owner: Lane, tasks: Lane[]): void {
  let parent = owner;
  if (tasks.length > 1) {
    parent = newLane("tasks", `${owner.key}/tasks`, `${tasks.length} tasks`, owner.rank, owner);
    parent.open = tasks.length <= TASKS_OPEN;
    parent.calls = tasks.find((task) => task.calls)?.calls ?? null;
  }
  for (const task of tasks) {
    task.parent = parent;
    task.level = parent.level + 1;
    parent.children.push(task);
  }
}

export async function readRun(data: RunData, index: number): Promise<Run> {
  const { regions, byId, colours } = makeRegions(data);
  const threads = makeThreads(data);
  const ranks = await Promise.all(readRanks(index).map(({ rank, data: layout }) => RankCalls.read(index, rank, layout)));
  const run: Run = {
    data, index, names: data.names, regions, byId, colours, threads, tasks: makeTasks(data, threads), ranks, lanes: [],
    callCount: regions.reduce((sum, region) => sum + region.calls, 0), from: 0, to: Math.max(data.end, 1),
    metadata: new Map(data.metadata),
  };
  const parts = partsByRank(run);
  if (parts.length === 1) run.lanes = makeRankLanes(run, parts[0], null);
  else {
    run.lanes = parts.map((part) => {
      const lane = newLane("rank", `${part.rank}`, rankLabel(data, part.rank), part.rank, null);
      makeRankLanes(run, part, lane);
      return lane;
    });
  }
  for (const region of regions) {
    if (region.p50 !== null || region.ranks < 2 || ranks.length === 0) continue;
    Object.defineProperties(region, lazyPercentiles(run, region.id));
  }
  return run;
}

/** Over several ranks they are made of the calls, when a table or the details first ask. */
function lazyPercentiles(run: Run, id: number): PropertyDescriptorMap {
  let known: (number | null)[] | null = null;
  const get = (place: number) => ({ get: () => (known ??= percentiles(run, id, [0.5, 0.95, 0.99]))[place], enumerable: true });
  return { p50: get(0), p95: get(1), p99: get(2) };
}

/** A lane in words: "rank 1 › MainThread › Task-3 (fetch)". */
export function lanePath(lane: Lane): string {
  const parts: string[] = [];
  for (let at: Lane | null = lane; at; at = at.parent) if (at.kind !== "tasks") parts.unshift(at.label);
  return parts.join(" › ");
}

export function* everyLane(lanes: Lane[]): Generator<Lane> {
  for (const lane of lanes) {
    yield lane;
    yield* everyLane(lane.children);
  }
}
