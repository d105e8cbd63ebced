// What the views have in common.
import { computed, effect, signal } from "@preact/signals";
import type { RankCalls } from "./calls";
import { makePalette, SCHEMES, type Scheme } from "./colour";
import { duration, visible } from "./format";
import { everyLane, lanePath, type Lane, type Run } from "./model";
import type { Options } from "./report";

export type Tab = "timeline" | "flame" | "regions" | "threads" | "tasks" | "samples" | "compare" | "run";
export type Theme = "auto" | "light" | "dark";

export interface Selected {
  calls: RankCalls;
  call: number;
}

export interface View {
  from: number;
  to: number;
}

export const runs = signal<Run[]>([]);
export const options = signal<Options>({});
export const exporter = signal("");
export const runIndex = signal(0);
export const run = computed<Run | undefined>(() => runs.value[runIndex.value]);
export const tab = signal<Tab>("timeline");
export const view = signal<View>({ from: 0, to: 1 });
export const selected = signal<Selected | null>(null);
/** A region whose numbers are shown while no call is selected. */
export const chosenRegion = signal<number | null>(null);
export const search = signal("");
export const theme = signal<Theme>("auto");
/** Counts up whenever a lane is opened or closed. */
export const laneVersion = signal(0);
/** A lane to bring into sight. */
export const wantedLane = signal<Lane | null>(null);
/** What screen readers are told. */
export const announcement = signal("");

const dark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(dark.matches);
dark.addEventListener("change", () => (systemDark.value = dark.matches));

export const scheme = computed<Scheme>(
  () => SCHEMES[theme.value === "auto" ? (systemDark.value ? "dark" : "light") : theme.value],
);

effect(() => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** By name: 1 for the regions that the search finds; null: nothing is searched for. */
export const shown = computed<Uint8Array | null>(() => {
  const text = search.value.trim().toLowerCase();
  const current = run.value;
  if (text === "" || !current) return null;
  const found = new Uint8Array(current.names.length);
  for (const region of current.regions) found[region.id] = visible(region.name).toLowerCase().includes(text) ? 1 : 0;
  return found;
});

export const palette = computed(() => makePalette(run.value?.colours ?? new Uint32Array(), scheme.value, shown.value));

/** For each rank: how many calls before each one are of the regions that the search finds. */
export const marks = computed<Map<RankCalls, Int32Array>>(() => {
  const found = new Map<RankCalls, Int32Array>();
  const wanted = shown.value;
  if (!wanted) return found;
  for (const calls of run.value!.ranks) {
    const sums = new Int32Array(calls.count + 1);
    for (let i = 0; i < calls.count; i++) sums[i + 1] = sums[i] + wanted[calls.name[i]];
    found.set(calls, sums);
  }
  return found;
});

export const matchCount = computed(() => {
  let sum = 0;
  for (const sums of marks.value.values()) sum += sums[sums.length - 1];
  return sum;
});

/** The view, kept near the run and not narrower than 20 ns. */
export function show(from: number, to: number): void {
  const current = run.value;
  if (!current) return;
  const whole = current.to - current.from;
  const width = Math.min(Math.max(to - from, 20), whole * 1.1 + 20);
  const middle = (from + to) / 2;
  const slack = width * 0.5;
  const centre = Math.min(Math.max(middle, current.from + width / 2 - slack), current.to - width / 2 + slack);
  view.value = { from: centre - width / 2, to: centre + width / 2 };
}

export function showAll(): void {
  const current = run.value;
  if (!current) return;
  const margin = (current.to - current.from) * 0.01;
  view.value = { from: current.from - margin, to: current.to + margin };
}

export function zoom(factor: number, around?: number): void {
  const { from, to } = view.value;
  const at = around ?? (from + to) / 2;
  show(at - (at - from) * factor, at + (to - at) * factor);
}

export function laneOf(current: Run, at: Selected): Lane | undefined {
  const track = at.calls.trackOf(at.call);
  for (const lane of everyLane(current.lanes)) if (lane.calls === at.calls && lane.tracks.includes(track)) return lane;
  return undefined;
}

export function reveal(lane: Lane): void {
  for (let at = lane.parent; at; at = at.parent) at.open = true;
  laneVersion.value++;
  wantedLane.value = lane;
}

/** Select a call; `center` also brings it into sight. */
export function select(at: Selected | null, center = false): void {
  selected.value = at;
  if (!at) return;
  const current = run.value!;
  const { calls, call } = at;
  const lane = laneOf(current, at);
  const length = calls.end[call] - calls.start[call];
  announcement.value = `${visible(current.names[calls.name[call]])}, ${duration(length)}, on ${lane ? lanePath(lane) : ""}, starts at ${duration(calls.start[call])}`;
  chosenRegion.value = null;
  if (!center) return;
  const { from, to } = view.value;
  if (calls.start[call] < from || calls.end[call] > to || length < (to - from) / 400) {
    const width = Math.max(length * 3, Math.min(to - from, length * 200));
    const middle = (calls.start[call] + calls.end[call]) / 2;
    show(middle - width / 2, middle + width / 2);
  }
  if (lane) {
    const row = calls.rowOf(call) - lane.tracks[0].row;
    if (row >= lane.shown) lane.shown = lane.depth;
    reveal(lane);
  }
}

export function zoomTo({ calls, call }: Selected): void {
  const length = Math.max(calls.end[call] - calls.start[call], 20);
  show(calls.start[call] - length * 0.1, calls.end[call] + length * 0.1);
}

/** The next call that `wanted` says 1 of, in the order of the lanes; round the end to the beginning. */
export function step(direction: 1 | -1, wanted: Uint8Array): void {
  const ranks = run.value!.ranks;
  const total = ranks.reduce((sum, calls) => sum + calls.count, 0);
  if (total === 0) return;
  let place = selected.value ? Math.max(0, ranks.indexOf(selected.value.calls)) : 0;
  let call = selected.value ? selected.value.call : direction > 0 ? -1 : 0;
  for (let tried = 0; tried < total; tried++) {
    call += direction;
    while (call >= ranks[place].count || call < 0) {
      place = (place + direction + ranks.length) % ranks.length;
      call = direction > 0 ? 0 : ranks[place].count - 1;
    }
    if (wanted[ranks[place].name[call]]) {
      select({ calls: ranks[place], call }, true);
      return;
    }
  }
}

/** Only the calls of one region. */
export function only(id: number): Uint8Array {
  const wanted = new Uint8Array(run.value!.names.length);
  wanted[id] = 1;
  return wanted;
}
