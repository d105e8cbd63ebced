// Regions, threads, tasks and samples as tables.
import { useMemo } from "preact/hooks";
import { css } from "./colour";
import { count, duration, percent, visible } from "./format";
import { everyLane, type Lane, type Region, type Run, type Task, type Thread } from "./model";
import type { SampleRow } from "./report";
import * as state from "./state";
import { Table, type Column } from "./table";

export function Chip({ colour }: { colour: number }) {
  return <span class="chip" aria-hidden="true" style={{ background: css(colour) }} />;
}

/** A share as a bar: `part` of `whole` is solid, the rest hatched. */
export function Bar({ part, whole, most, colour }: { part: number; whole: number; most: number; colour?: string }) {
  const width = most > 0 ? Math.max(1, (whole / most) * 100) : 0;
  const solid = whole > 0 ? Math.min(100, (part / whole) * 100) : 0;
  return (
    <span class="bar" aria-hidden="true">
      <span style={{ width: `${width}%`, ...(colour ? { "--c": colour } : {}) }}>
        <i style={{ width: `${solid}%` }} />
      </span>
    </span>
  );
}

function time<T>(key: string, title: string, about: string, value: (row: T) => number | null): Column<T> {
  return { key, title, about, number: true, value, cell: (row) => duration(value(row)) };
}

function number<T>(key: string, title: string, about: string, value: (row: T) => number | null): Column<T> {
  return { key, title, about, number: true, value, cell: (row) => count(value(row)) };
}

// Columns and orders have the names that the command line gives them.
const ALWAYS = ["region", "calls", "total", "own", "share"];

function regionColumns(run: Run): Column<Region>[] {
  const most = Math.max(...run.regions.map((region) => region.total), 1);
  const wall = Math.max(run.to - run.from, 1) * Math.max(1, run.ranks.length);
  const all: Column<Region>[] = [
    {
      key: "region", title: "Region", value: (region) => visible(region.name),
      cell: (region) => <><Chip colour={region.colour} /><span class="name" title={visible(region.name)}>{visible(region.name)}</span></>,
    },
    number("calls", "Calls", "How often it was entered", (region) => region.calls),
    time("total", "Total", "Time in all its calls", (region) => region.total),
    {
      key: "share", title: "Own of total", about: "The length is the total; the solid part no region inside it covers", number: true,
      value: (region) => (region.own === null ? null : region.own / Math.max(region.total, 1)),
      cell: (region) => <Bar part={region.own ?? region.total} whole={region.total} most={most} colour={css(region.colour)} />,
    },
    time("own", "Own", "Time that no region inside it covers", (region) => region.own),
    time("await", "Awaiting", "Time that its calls spent awaiting", (region) => region.awaiting),
    {
      key: "percent", title: "Of run", about: "Its total as a share of the time of the run", number: true,
      value: (region) => region.total / wall, cell: (region) => percent(region.total / wall),
    },
    time("avg", "Mean", "Mean of its calls", (region) => region.mean),
    time("std", "Std", "Standard deviation of its calls", (region) => region.std),
    time("min", "Min", "Its shortest call", (region) => region.min),
    time("p50", "p50", "Half of its calls are shorter", (region) => region.p50),
    time("p95", "p95", "95 of 100 calls are shorter", (region) => region.p95),
    time("p99", "p99", "99 of 100 calls are shorter", (region) => region.p99),
    time("max", "Max", "Its longest call", (region) => region.max),
    time("first", "First", "The call that started first", (region) => region.first),
    time("last", "Last", "The call that ended last", (region) => region.last),
    { ...time<Region>("start", "Start", "When its first call started", (region) => region.start), ascending: true },
    time("gpu_total", "GPU", "Time on the GPU", (region) => region.gpu),
    time("gpu_avg", "GPU mean", "Mean time on the GPU", (region) => (region.gpu === null ? null : region.gpu / Math.max(region.calls, 1))),
    number("ranks", "Ranks", "Ranks that have it", (region) => region.ranks),
    {
      key: "imbalance", title: "Imbalance", about: "Its largest total on a rank by the mean of the ranks", number: true,
      value: (region) => region.imbalance, cell: (region) => (region.imbalance === null ? "–" : region.imbalance.toFixed(2)),
    },
  ];
  const wanted = state.options.value.columns;
  return all.filter((column) => {
    if (wanted) return wanted.includes(column.key) || column.key === "region";
    return ALWAYS.includes(column.key) || run.regions.some((region) => column.value(region) !== null);
  }).filter((column) => wanted || column.key !== "ranks" || run.regions.some((region) => region.ranks > 1));
}

export function Regions({ run }: { run: Run }) {
  const columns = useMemo(() => regionColumns(run), [run]);
  const shown = state.shown.value;
  const rows = useMemo(() => (shown ? run.regions.filter((region) => shown[region.id]) : run.regions), [run, shown]);
  const asked = state.options.value.sort ?? "own";
  const sort = asked === "name" ? "region" : asked;
  return (
    <Table
      label="Regions" rows={rows} columns={columns} sort={sort} keyOf={(region) => String(region.id)}
      isCurrent={(region) => state.chosenRegion.value === region.id}
      onOpen={(region) => {
        state.select(null);
        state.chosenRegion.value = region.id;
      }}
    />
  );
}

function showLane(run: Run, match: (lane: Lane) => boolean): void {
  for (const lane of everyLane(run.lanes)) {
    if (!match(lane)) continue;
    state.tab.value = "timeline";
    state.reveal(lane);
    return;
  }
}

const severalRanks = (run: Run): boolean => new Set(run.threads.map((thread) => thread.rank)).size > 1;

export function Threads({ run }: { run: Run }) {
  const columns = useMemo<Column<Thread>[]>(() => {
    const most = Math.max(...run.threads.map((thread) => thread.wall ?? 0), 1);
    const all: Column<Thread>[] = [
      { key: "name", title: "Thread", value: (thread) => visible(thread.name), cell: (thread) => <span class="name">{visible(thread.name)}</span> },
      number("rank", "Rank", "Its process", (thread) => thread.rank),
      {
        key: "share", title: "CPU of wall", about: "The length is the life of the thread; the solid part it had a processor", number: true,
        value: (thread) => thread.share,
        cell: (thread) =>
          thread.share === null ? "–" : (
            <span class="with-bar"><Bar part={thread.cpu ?? 0} whole={thread.wall ?? 0} most={most} /> {percent(thread.share)}</span>
          ),
      },
      time("cpu", "CPU", "Time that it had a processor in the run", (thread) => thread.cpu),
      time("wall", "Wall", "From its start to its end, or to the last call of the run", (thread) => thread.wall),
      time("covered", "In regions", "Wall time in which it was inside a call", (thread) => thread.covered),
      number("calls", "Calls", "Calls on it, its tasks' included", (thread) => thread.calls),
      number("tasks", "Tasks", "Tasks that it ran last", (thread) => thread.tasks),
      { ...time<Thread>("start", "Start", "When it started", (thread) => thread.start), ascending: true },
      time("end", "End", "When it ended; –: it had not", (thread) => thread.end),
      { key: "daemon", title: "Daemon", value: (thread) => (thread.daemon ? "yes" : "no") },
      { key: "native", title: "Id", about: "As the system numbers it", value: (thread) => thread.nativeId },
    ];
    return all.filter((column) => (column.key !== "rank" || severalRanks(run)) && (column.key !== "tasks" || run.tasks.length > 0));
  }, [run]);
  if (run.threads.length === 0) return <p class="empty">This run did not follow threads: record it with <code>track_threads=True</code>.</p>;
  return (
    <Table
      label="Threads" rows={run.threads} columns={columns} sort="cpu" keyOf={(thread) => `${thread.rank}/${thread.index}`}
      onOpen={(thread) => showLane(run, (lane) => lane.thread === thread)}
    />
  );
}

export function Tasks({ run }: { run: Run }) {
  const text = state.search.value.trim().toLowerCase();
  const columns = useMemo<Column<Task>[]>(() => {
    const most = run.tasks.reduce((most, task) => Math.max(most, task.running + task.suspended), 1);
    const all: Column<Task>[] = [
      { key: "name", title: "Task", value: (task) => visible(task.name), cell: (task) => <span class="name">{visible(task.name)}</span> },
      { key: "coroutine", title: "Coroutine", value: (task) => visible(task.coroutine), cell: (task) => <span class="name">{visible(task.coroutine)}</span> },
      { key: "kind", title: "Kind", value: (task) => task.kind },
      number("rank", "Rank", "Its process", (task) => task.rank),
      { key: "thread", title: "Thread", value: (task) => visible(task.threadName) },
      {
        key: "share", title: "Running of life", about: "The length is the time it was running and awaiting; the solid part it ran", number: true,
        value: (task) => (task.running + task.suspended > 0 ? task.running / (task.running + task.suspended) : null),
        cell: (task) => <Bar part={task.running} whole={task.running + task.suspended} most={most} />,
      },
      { key: "maker", title: "Made by", about: "The task or thread that created it", value: (task) => visible(task.maker) || null },
      time("running", "Running", "Time in its steps", (task) => task.running),
      time("awaiting", "Awaiting", "Time between its steps", (task) => task.suspended),
      number("steps", "Steps", "How often it was resumed", (task) => task.steps),
      number("calls", "Calls", "Calls in its lane", (task) => task.calls),
      { ...time<Task>("created", "Created", "When it was made", (task) => task.created), ascending: true },
      time("done", "Done", "When it was done; –: it was not", (task) => task.done),
      time("wall", "Life", "From its making to its end, or to the last call of the run", (task) => task.wall),
    ];
    return all.filter((column) => (column.key !== "rank" || severalRanks(run)) && (column.key !== "kind" || run.tasks.some((task) => task.kind !== "task")) && (column.key !== "maker" || run.tasks.some((task) => task.maker !== "")));
  }, [run]);
  const rows = useMemo(
    () => (text === "" ? run.tasks : run.tasks.filter((task) => `${visible(task.name)} ${visible(task.coroutine)}`.toLowerCase().includes(text))),
    [run, text],
  );
  if (run.tasks.length === 0) return <p class="empty">This run has no tasks. Record with <code>track_async=True</code> to follow asyncio tasks and greenlets.</p>;
  return (
    <Table
      label="Tasks" rows={rows} columns={columns} sort="running" keyOf={(task) => `${task.rank}/${task.index}`}
      onOpen={(task) => showLane(run, (lane) => lane.task === task)}
    />
  );
}

export function Samples({ run }: { run: Run }) {
  const all = state.options.value.samples?.[run.index] ?? [];
  const text = state.search.value.trim().toLowerCase();
  const columns = useMemo<Column<SampleRow>[]>(() => {
    const most = all.reduce((most, row) => Math.max(most, row[6]), 1);
    const columns: Column<SampleRow>[] = [
      { key: "name", title: "Function", value: (row) => visible(row[3]), cell: (row) => <span class="name">{visible(row[3])}</span> },
      { key: "place", title: "Defined in", value: (row) => visible(row[4]), cell: (row) => <span class="name">{visible(row[4])}</span> },
      { key: "region", title: "Region", about: "The innermost region that was open; –: none", value: (row) => (row[2] === null ? null : visible(row[2])) },
      number("rank", "Rank", "Its process", (row) => row[0]),
      { key: "thread", title: "Thread", value: (row) => visible(row[1]) },
      {
        key: "share", title: "CPU of time", about: "The length is the time that was spent there; in the solid part the thread had a processor", number: true,
        value: (row) => (row[6] > 0 ? row[7] / row[6] : null),
        cell: (row) => <Bar part={row[7]} whole={row[6]} most={most} />,
      },
      time("time", "Time", "Wall clock that the samples stand for", (row) => row[6]),
      time("cpu", "CPU", "Processor time in it; the rest was waited", (row) => row[7]),
      number("samples", "Samples", "How often the thread was seen there", (row) => row[5]),
    ];
    return columns.filter((column) => column.key !== "rank" || new Set(all.map((row) => row[0])).size > 1);
  }, [all]);
  const rows = useMemo(
    () => (text === "" ? all : all.filter((row) => `${visible(row[3])} ${visible(row[4])} ${visible(row[1])} ${visible(row[2] ?? "")}`.toLowerCase().includes(text))),
    [all, text],
  );
  return <Table label="Samples" rows={rows} columns={columns} sort="time" keyOf={(row) => row.slice(0, 5).join("\n")} />;
}
