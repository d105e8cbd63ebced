// The lanes over time: labels on the left, which are elements, and calls as pixels.
import { effect } from "@preact/signals";
import { ticks } from "d3-array";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RankCalls } from "./calls";
import { css, mix, type Scheme } from "./colour";
import { Crowd } from "./crowd";
import { count, duration, moment, percent, visible } from "./format";
import { everyLane, lanePath, type Lane, type Run } from "./model";
import { Raster, type Window } from "./raster";
import * as state from "./state";

const ROW = 17;
const ROW_GAP = 1;
const PADDING = 4;
const EMPTY = 22;
const CROWD = 34;
const HEADING = 26;
export const AXIS = 26;
const OVERVIEW = 46;

interface Placed {
  lane: Lane;
  top: number;
  height: number;
}

function heightOf(lane: Lane): number {
  if (lane.kind === "rank") return HEADING;
  if (lane.kind === "tasks") return CROWD + 2 * PADDING;
  return lane.shown === 0 ? EMPTY : lane.shown * (ROW + ROW_GAP) + 2 * PADDING;
}

function place(lanes: Lane[]): Placed[] {
  const placed: Placed[] = [];
  let top = 0;
  const visit = (lane: Lane) => {
    const height = heightOf(lane);
    placed.push({ lane, top, height });
    top += height;
    if (lane.open) lane.children.forEach(visit);
  };
  lanes.forEach(visit);
  return placed;
}

/** The first lane that reaches below `y`. */
function firstBelow(placed: Placed[], y: number): number {
  let low = 0;
  let high = placed.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (placed[middle].top + placed[middle].height > y) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** When a thread or task lived, if that is known: its calls lie on a band of that length. */
function lifeOf({ thread, task }: Lane, run: Run): [number, number] | null {
  const begin = thread ? thread.start : task ? task.created : null;
  const end = thread ? thread.end : task ? task.done : null;
  return begin === null ? null : [begin, end ?? Math.max(run.to, begin)];
}

/** Rows of a lane that are drawn: its tracks', one below the other. */
function* rowsOf(lane: Lane): Generator<[calls: RankCalls, row: number, place: number]> {
  let at = 0;
  for (const track of lane.tracks) {
    for (let depth = 0; depth < track.depth; depth++, at++) {
      if (at >= lane.shown) return;
      yield [lane.calls!, track.row + depth, at];
    }
  }
}

export interface Hit {
  calls: RankCalls;
  call: number;
  lane: Lane;
}

/** The canvases and what is drawn on them. */
class Drawing {
  placed: Placed[] = [];
  scrollTop = 0;
  hover: Hit | null = null;
  /** How long the drawing of each frame took, in ms; for benchmarks. */
  readonly costs: number[] = [];
  private raster: Raster | null = null;
  private width = 0;
  private height = 0;
  private ratio = 1;
  private pending = 0;
  private readonly texts = new Map<number, { text: string; width: number }[]>();
  private readonly crowds = new Map<Lane, Crowd>();
  private overviewCrowd: Crowd | null = null;
  private overviewRaster: Raster | null = null;
  private overviewScheme: Scheme | null = null;

  constructor(
    private readonly run: Run,
    private readonly canvas: HTMLCanvasElement,
    private readonly axis: HTMLCanvasElement,
    private readonly overview: HTMLCanvasElement,
  ) {
    this.place();
  }

  place(): void {
    this.placed = place(this.run.lanes);
  }

  get total(): number {
    const last = this.placed.at(-1);
    return last ? last.top + last.height : 0;
  }

  get viewWidth(): number {
    return this.width;
  }

  resize(width: number, height: number): void {
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = width;
    this.height = height;
    for (const [canvas, tall] of [[this.canvas, height], [this.axis, AXIS], [this.overview, OVERVIEW]] as const) {
      canvas.width = Math.max(1, Math.round(width * this.ratio));
      canvas.height = Math.max(1, Math.round(tall * this.ratio));
      canvas.style.width = `${width}px`;
      canvas.style.height = `${tall}px`;
    }
    this.raster = new Raster(this.canvas.getContext("2d", { alpha: false })!, this.canvas.width, this.canvas.height);
    this.texts.clear();
    this.overviewRaster = null;
    this.request();
  }

  /** Draw with the next frame. */
  request(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      const begin = performance.now();
      this.draw();
      if (this.costs.push(performance.now() - begin) > 10_000) this.costs.splice(0, 5_000);
    });
  }

  stop(): void {
    cancelAnimationFrame(this.pending);
  }

  time(x: number): number {
    const { from, to } = state.view.peek();
    return from + (x / this.width) * (to - from);
  }

  hit(x: number, y: number): Hit | null {
    const at = y + this.scrollTop;
    const found = this.placed[firstBelow(this.placed, at)];
    if (!found || at < found.top || !found.lane.calls || found.lane.kind === "tasks") return null;
    const wanted = Math.floor((at - found.top - PADDING) / (ROW + ROW_GAP));
    const { from, to } = state.view.peek();
    const slack = (3 * (to - from)) / this.width;
    for (const [calls, row, place] of rowsOf(found.lane)) {
      if (place !== wanted) continue;
      const call = calls.at(row, this.time(x), slack);
      return call < 0 ? null : { calls, call, lane: found.lane };
    }
    return null;
  }

  laneAt(y: number): Placed | undefined {
    return this.placed[firstBelow(this.placed, y)];
  }

  private crowdOf(lane: Lane): Crowd {
    let crowd = this.crowds.get(lane);
    if (!crowd) {
      crowd = Crowd.of(lane.children, this.run.from, this.run.to);
      this.crowds.set(lane, crowd);
    }
    return crowd;
  }

  private window(): Window {
    const { from, to } = state.view.peek();
    const scale = this.canvas.width / (to - from);
    // On whole pixels of the time axis: then the same calls fall into one pixel wherever the view is.
    return { from: Math.round(from * scale) / scale, scale };
  }

  private draw(): void {
    const raster = this.raster;
    if (!raster || this.width === 0) return;
    const scheme = state.scheme.peek();
    const palette = state.palette.peek();
    const shown = state.shown.peek();
    const marks = state.marks.peek();
    const window = this.window();
    const ratio = this.ratio;
    const px = (css: number) => Math.round(css * ratio);
    raster.begin(scheme);
    for (let i = firstBelow(this.placed, this.scrollTop); i < this.placed.length; i++) {
      const { lane, top, height } = this.placed[i];
      const y = top - this.scrollTop;
      if (y > this.height) break;
      const background = lane.kind === "task" ? scheme.stripe : scheme.background;
      raster.band(px(y), px(height), background);
      const life = lifeOf(lane, this.run);
      if (life) {
        const at = (time: number) => Math.round((time - window.from) * window.scale);
        raster.area(at(life[0]), at(life[1]), px(y), px(height), scheme.life);
      }
      if (lane.kind === "tasks") {
        raster.crowd(
          this.crowdOf(lane), px(y + PADDING), px(CROWD), window, scheme.accent, mix(scheme.background, scheme.accent, 0.35),
        );
      }
      for (const [calls, row, at] of rowsOf(lane)) {
        const rowTop = y + PADDING + at * (ROW + ROW_GAP);
        if (rowTop + ROW < 0) continue;
        if (rowTop > this.height) break;
        raster.row(calls, row, px(rowTop), px(ROW), window, palette, life ? scheme.life : background, shown, marks.get(calls) ?? null, true);
      }
      raster.band(px(y + height) - 1, 1, lane.kind === "rank" ? scheme.accent : mix(scheme.background, scheme.accent, 0.16));
    }
    raster.end();
    this.drawLabels();
    this.drawMarks();
    this.drawAxis();
    this.drawOverview();
  }

  private drawLabels(): void {
    const context = this.canvas.getContext("2d", { alpha: false })!;
    const scheme = state.scheme.peek();
    const shown = state.shown.peek();
    context.font = `${11 * this.ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    let last = "";
    for (const label of this.raster!.labels) {
      const id = label.calls.name[label.call];
      const room = label.right - label.left - 8 * this.ratio;
      const text = this.fit(context, id, room);
      if (text === "") continue;
      const faded = shown && !shown[id];
      const colour = faded ? scheme.faint : label.pale && scheme.dark ? scheme.text : "#10151f";
      if (colour !== last) context.fillStyle = last = colour;
      context.fillText(text, label.left + 4 * this.ratio, label.top + (ROW / 2 + 0.5) * this.ratio);
    }
  }

  /** A name in a width in pixels: whole, or without its modules, or cut. */
  private fit(context: CanvasRenderingContext2D, id: number, room: number): string {
    let names = this.texts.get(id);
    if (!names) {
      const whole = visible(this.run.names[id]);
      const last = whole.slice(whole.lastIndexOf(".") + 1);
      names = (last === "" || last === whole ? [whole] : [whole, last]).map((text) => ({ text, width: context.measureText(text).width }));
      this.texts.set(id, names);
    }
    for (const { text, width } of names) if (width <= room) return text;
    const { text, width } = names.at(-1)!;
    const letters = Math.floor((room / width) * text.length) - 1;
    return letters < 2 ? "" : `${text.slice(0, letters)}…`;
  }

  private drawMarks(): void {
    const context = this.canvas.getContext("2d", { alpha: false })!;
    const scheme = state.scheme.peek();
    const chosen = state.selected.peek();
    if (this.hover && !(chosen && chosen.call === this.hover.call && chosen.calls === this.hover.calls)) {
      this.outline(context, this.hover, scheme.selection, 1);
    }
    if (chosen) this.outline(context, chosen, scheme.selection, 2);
  }

  private outline(context: CanvasRenderingContext2D, { calls, call }: state.Selected, colour: string, width: number): void {
    const box = this.boxOf({ calls, call });
    if (!box) return;
    context.strokeStyle = colour;
    context.lineWidth = width * this.ratio;
    const half = (width * this.ratio) / 2;
    const left = Math.max(box.left * this.ratio, -10) + half;
    const right = Math.min(box.right * this.ratio, this.canvas.width + 10) - half;
    context.strokeRect(left, box.top * this.ratio + half, Math.max(right - left, 1), ROW * this.ratio - 2 * half);
  }

  /** Where a call is on the canvas, in CSS pixels; null: its lane is closed. */
  boxOf({ calls, call }: state.Selected): { left: number; right: number; top: number } | null {
    const row = calls.rowOf(call);
    const track = calls.tracks[calls.rowTrack[row]];
    const found = this.placed.find(({ lane }) => lane.calls === calls && lane.tracks.includes(track));
    if (!found) return null;
    for (const [, drawn, at] of rowsOf(found.lane)) {
      if (drawn !== row) continue;
      const { from, to } = state.view.peek();
      const scale = this.width / (to - from);
      const left = (calls.start[call] - from) * scale;
      return {
        left, right: Math.max((calls.end[call] - from) * scale, left + 2),
        top: found.top - this.scrollTop + PADDING + at * (ROW + ROW_GAP),
      };
    }
    return null;
  }

  private drawAxis(): void {
    const context = this.axis.getContext("2d", { alpha: false })!;
    const scheme = state.scheme.peek();
    const { from, to } = state.view.peek();
    const ratio = this.ratio;
    context.fillStyle = css(scheme.background);
    context.fillRect(0, 0, this.axis.width, this.axis.height);
    const marks = ticks(from, to, Math.max(2, Math.floor(this.width / 110)));
    const step = marks.length > 1 ? marks[1] - marks[0] : to - from;
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const mark of marks) {
      const x = Math.round(((mark - from) / (to - from)) * this.axis.width);
      context.fillStyle = scheme.line;
      context.fillRect(x, 0, Math.max(1, Math.round(ratio)), this.axis.height);
      context.fillStyle = scheme.faint;
      context.fillText(moment(mark, step), x + 5 * ratio, this.axis.height / 2);
    }
  }

  private drawOverview(): void {
    const context = this.overview.getContext("2d", { alpha: false })!;
    const scheme = state.scheme.peek();
    const { width, height } = this.overview;
    const whole = { from: this.run.from, scale: width / (this.run.to - this.run.from) };
    if (!this.overviewRaster || this.overviewScheme !== scheme) {
      const raster = new Raster(context, width, height);
      this.overviewCrowd ??= Crowd.of(everyLane(this.run.lanes), this.run.from, this.run.to);
      raster.begin(scheme);
      raster.band(0, height, scheme.stripe);
      const pad = Math.round(4 * this.ratio);
      raster.crowd(this.overviewCrowd, pad, height - pad, whole, scheme.accent, mix(scheme.background, scheme.accent, 0.35));
      this.overviewRaster = raster;
      this.overviewScheme = scheme;
    }
    this.overviewRaster.end();
    const { from, to } = state.view.peek();
    const left = Math.round((from - whole.from) * whole.scale);
    const right = Math.max(left + 2, Math.round((to - whole.from) * whole.scale));
    context.fillStyle = scheme.dark ? "rgb(10 12 16 / 62%)" : "rgb(120 130 148 / 32%)";
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, width - right, height);
    context.fillStyle = css(scheme.accent);
    context.fillRect(left - this.ratio, 0, 2 * this.ratio, height);
    context.fillRect(right - this.ratio, 0, 2 * this.ratio, height);
  }

}

/** Pointers on the lanes: drag to move, pinch to zoom, click to select. */
class Gestures {
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private spread = 0;

  constructor(private readonly drawing: Drawing, private readonly surface: HTMLElement, private readonly scroller: HTMLElement,
    private readonly onHover: (hit: Hit | null, x: number, y: number) => void) {}

  attach(): () => void {
    const { surface } = this;
    const listeners: [string, (event: never) => void][] = [
      ["pointerdown", this.down], ["pointermove", this.move], ["pointerup", this.up], ["pointercancel", this.cancel],
      ["pointerleave", this.leave], ["dblclick", this.double], ["wheel", this.wheel],
    ];
    for (const [kind, listener] of listeners) surface.addEventListener(kind, listener as EventListener, { passive: false });
    return () => {
      for (const [kind, listener] of listeners) surface.removeEventListener(kind, listener as EventListener);
    };
  }

  private point(event: MouseEvent): { x: number; y: number } {
    const box = this.surface.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, this.point(event));
    this.moved = this.pointers.size > 1 ? 100 : 0;
    this.spread = this.distance();
  };

  private distance(): number {
    const [a, b] = [...this.pointers.values()];
    return b ? Math.max(20, Math.abs(a.x - b.x)) : 0;
  }

  private move = (event: PointerEvent): void => {
    const at = this.point(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") this.onHover(this.drawing.hit(at.x, at.y), event.clientX, event.clientY);
      return;
    }
    this.pointers.set(event.pointerId, at);
    this.moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (this.moved <= 3) return;
    if (!this.surface.hasPointerCapture(event.pointerId)) this.surface.setPointerCapture(event.pointerId);
    this.onHover(null, 0, 0);
    const { from, to } = state.view.value;
    const scale = (to - from) / this.drawing.viewWidth;
    if (this.pointers.size > 1) {
      const spread = this.distance();
      const [a, b] = [...this.pointers.values()];
      state.zoom(this.spread / spread, this.drawing.time((a.x + b.x) / 2));
      this.spread = spread;
      return;
    }
    state.show(from - (at.x - before.x) * scale, to - (at.x - before.x) * scale);
    if (event.pointerType === "mouse") this.scroller.scrollTop -= at.y - before.y;
  };

  private up = (event: PointerEvent): void => {
    if (!this.pointers.delete(event.pointerId) || this.moved > 3) return;
    const { x, y } = this.point(event);
    const hit = this.drawing.hit(x, y);
    state.select(hit ? { calls: hit.calls, call: hit.call } : null);
  };

  private cancel = (event: PointerEvent): void => {
    this.pointers.delete(event.pointerId);
  };

  private leave = (): void => this.onHover(null, 0, 0);

  private double = (event: MouseEvent): void => {
    const { x, y } = this.point(event);
    const hit = this.drawing.hit(x, y);
    if (hit) state.zoomTo(hit);
    else state.zoom(0.4, this.drawing.time(x));
  };

  private wheel = (event: WheelEvent): void => {
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const { x } = this.point(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const speed = Math.abs(event.deltaY) < 30 ? 0.01 : 0.002; // a pinch of a touchpad comes in small steps
      state.zoom(Math.exp(event.deltaY * unit * speed), this.drawing.time(x));
      return;
    }
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (sideways === 0 || (!event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY))) return;
    event.preventDefault();
    const { from, to } = state.view.value;
    const by = (sideways * unit * (to - from)) / this.drawing.viewWidth;
    state.show(from + by, to + by);
  };
}

function LaneLabel({ placed, top, onToggle }: { placed: Placed; top: number; onToggle: (lane: Lane) => void }) {
  const { lane, height } = placed;
  const hidden = lane.depth - lane.shown;
  const opens = lane.children.length > 0;
  const { thread, task } = lane;
  const share = thread?.share ?? null;
  return (
    <div
      class={`lane lane-${lane.kind}`}
      role="treeitem"
      aria-level={lane.level + 1}
      aria-expanded={opens ? lane.open : undefined}
      aria-label={describe(lane)}
      data-lane={lane.key}
      style={{ top: `${top}px`, height: `${height}px`, paddingLeft: `${6 + lane.level * 12}px` }}
      title={describe(lane)}
    >
      {opens ? (
        <button class="twisty" aria-label={`${lane.open ? "Close" : "Open"} ${lane.label}`} onClick={() => onToggle(lane)}>
          {lane.open ? "▾" : "▸"}
        </button>
      ) : (
        <span class="twisty" />
      )}
      <span class="lane-name">{lane.label}</span>
      {lane.kind === "tasks" && <span class="lane-note">how many are in a call</span>}
      {share !== null && (
        <span class="cpu" title={`CPU ${duration(thread!.cpu)} of ${duration(thread!.wall)}`}>
          <i style={{ width: `${Math.min(100, share * 100)}%` }} />
        </span>
      )}
      {task && task.suspended + task.running > 0 && height > 40 && (
        <span class="lane-note">{percent(task.suspended / (task.suspended + task.running))} awaiting</span>
      )}
      {hidden > 0 && (
        <button
          class="more"
          onClick={() => {
            lane.shown = lane.depth;
            state.laneVersion.value++;
          }}
        >
          {count(hidden)} more levels
        </button>
      )}
    </div>
  );
}

function describe(lane: Lane): string {
  const parts = [lane.label];
  const { thread, task } = lane;
  if (thread) {
    if (thread.share !== null) parts.push(`CPU ${duration(thread.cpu)} of ${duration(thread.wall)}`);
    parts.push(`${count(thread.calls)} calls`);
  }
  if (task) parts.push(`${count(task.calls)} calls`, `${duration(task.running)} running, ${duration(task.suspended)} awaiting, ${count(task.steps)} steps`);
  return parts.join(" · ");
}

interface Tip {
  hit: Hit;
  x: number;
  y: number;
}

function Tooltip({ tip, run }: { tip: Tip; run: Run }) {
  const { calls, call, lane } = tip.hit;
  const length = calls.end[call] - calls.start[call];
  const awaiting = calls.awaiting ? calls.awaiting[call] : 0;
  const left = Math.min(tip.x + 14, window.innerWidth - 280);
  const top = Math.min(tip.y + 16, window.innerHeight - 110);
  return (
    <div class="tip" aria-hidden="true" style={{ left: `${left}px`, top: `${top}px` }}>
      <b>{visible(run.names[calls.name[call]])}</b>
      <div>
        {duration(length)}
        {awaiting > 0 && <span class="faint"> · {duration(length - awaiting)} running, {duration(awaiting)} awaiting</span>}
      </div>
      <div class="faint">own {duration(calls.own(call))} · {lanePath(lane)}</div>
    </div>
  );
}

/** Keys on the lanes. True: it was one. */
function onKey(event: KeyboardEvent, drawing: Drawing, scroller: HTMLElement): boolean {
  const { from, to } = state.view.value;
  const width = to - from;
  const pan = (share: number) => state.show(from + width * share, to + width * share);
  const at = state.selected.value;
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (event.shiftKey && at && moveSelection(event.key, at)) return true;
  switch (event.key) {
    case "ArrowLeft": case "a": pan(-0.1); return true;
    case "ArrowRight": case "d": pan(0.1); return true;
    case "ArrowUp": scroller.scrollTop -= 40; return true;
    case "ArrowDown": scroller.scrollTop += 40; return true;
    case "PageUp": scroller.scrollTop -= scroller.clientHeight * 0.9; return true;
    case "PageDown": scroller.scrollTop += scroller.clientHeight * 0.9; return true;
    case "Home": scroller.scrollTop = 0; return true;
    case "End": scroller.scrollTop = scroller.scrollHeight; return true;
    case "+": case "=": case "w": state.zoom(0.7); return true;
    case "-": case "s": state.zoom(1 / 0.7); return true;
    case "0": state.showAll(); return true;
    case "f": if (at) state.zoomTo(at); return at !== null;
    case "Enter": selectFirst(drawing); return true;
    case "Escape": state.select(null); return true;
    default: return false;
  }
}

/** From a call to its neighbours, its parent and its first child. */
function moveSelection(key: string, { calls, call }: state.Selected): boolean {
  const row = calls.rowOf(call);
  const go = (to: number) => state.select({ calls, call: to }, true);
  switch (key) {
    case "ArrowLeft": if (call > calls.rows[row]) go(call - 1); return true;
    case "ArrowRight": if (call + 1 < calls.rows[row + 1]) go(call + 1); return true;
    case "ArrowUp": if (calls.parent[call] >= 0) go(calls.parent[call]); return true;
    case "ArrowDown": {
      const [from, to] = calls.children(call);
      if (to > from) go(from);
      return true;
    }
    default: return false;
  }
}

/** The call nearest to the left edge, in the uppermost lane that has one in view. */
function selectFirst(drawing: Drawing): void {
  const { from, to } = state.view.value;
  for (const { lane, top, height } of drawing.placed) {
    if (top + height < drawing.scrollTop || !lane.calls || lane.tracks.length === 0) continue;
    const { calls } = lane;
    const row = lane.tracks[0].row;
    const call = calls.at(row, (from + to) / 2, (to - from) / 2);
    if (call >= 0) return state.select({ calls, call });
  }
}

function useOverview(drawing: { current: Drawing | null }, run: Run) {
  const drag = useRef<number | null>(null);
  const time = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return run.from + ((event.clientX - box.left) / box.width) * (run.to - run.from);
  };
  return {
    onPointerDown: (event: PointerEvent) => {
      (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
      drag.current = time(event);
    },
    onPointerMove: (event: PointerEvent) => {
      if (drag.current === null) return;
      const now = time(event);
      const wide = Math.abs(now - drag.current) > (run.to - run.from) * 0.003;
      if (wide) state.show(Math.min(now, drag.current), Math.max(now, drag.current));
    },
    onPointerUp: (event: PointerEvent) => {
      if (drag.current === null) return;
      const now = time(event);
      if (Math.abs(now - drag.current) <= (run.to - run.from) * 0.003) {
        const half = (state.view.value.to - state.view.value.from) / 2;
        state.show(now - half, now + half);
      }
      drag.current = null;
      drawing.current?.request();
    },
  };
}

export function Timeline({ run }: { run: Run }) {
  const host = useRef<HTMLDivElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const surface = useRef<HTMLDivElement>(null);
  const canvases = [useRef<HTMLCanvasElement>(null), useRef<HTMLCanvasElement>(null), useRef<HTMLCanvasElement>(null)];
  const drawing = useRef<Drawing | null>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [tip, setTip] = useState<Tip | null>(null);
  const version = state.laneVersion.value;
  const placed = useMemo(() => place(run.lanes), [run, version]);
  const total = placed.length ? placed.at(-1)!.top + placed.at(-1)!.height : 0;

  useEffect(() => {
    const made = new Drawing(run, canvases[0].current!, canvases[1].current!, canvases[2].current!);
    drawing.current = made;
    made.scrollTop = scroller.current!.scrollTop;
    const resize = () => {
      if (!surface.current || !scroller.current) return;
      const width = surface.current.clientWidth;
      const height = scroller.current.clientHeight;
      made.resize(width, height);
      setSize({ width, height });
    };
    const observer = new ResizeObserver(resize);
    observer.observe(scroller.current!);
    resize();
    const detach = new Gestures(made, surface.current!, scroller.current!, (hit, x, y) => {
      made.hover = hit;
      made.request();
      setTip(hit ? { hit, x, y } : null);
    }).attach();
    const stop = effect(() => {
      void [state.view.value, state.selected.value, state.palette.value, state.laneVersion.value];
      made.place();
      made.request();
    });
    exposed.drawing = made;
    return () => {
      observer.disconnect();
      detach();
      stop();
      made.stop();
    };
  }, [run]);

  useEffect(() => {
    if (drawing.current) drawing.current.place();
    const wanted = state.wantedLane.value;
    if (!wanted || size.height === 0) return;
    const found = placed.find(({ lane }) => lane === wanted);
    state.wantedLane.value = null;
    if (!found) return;
    const box = scroller.current!;
    const bottom = Math.min(found.top + found.height, found.top + box.clientHeight * 0.8);
    if (found.top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, found.top - box.clientHeight * 0.3);
  }, [state.wantedLane.value, placed, size]);

  const toggle = (lane: Lane) => {
    lane.open = !lane.open;
    state.laneVersion.value++;
  };
  const overview = useOverview(drawing, run);
  const first = firstBelow(placed, scrollTop);
  const labels: preact.JSX.Element[] = [];
  for (let i = first; i < placed.length && placed[i].top < scrollTop + Math.max(size.height, 100); i++) {
    labels.push(<LaneLabel key={placed[i].lane.key} placed={placed[i]} top={placed[i].top - scrollTop} onToggle={toggle} />);
  }
  return (
    <div class="timeline" ref={host}>
      <div class="timeline-head">
        <div class="corner">
          <button title="Zoom in (+)" aria-label="Zoom in" onClick={() => state.zoom(0.6)}>+</button>
          <button title="Zoom out (-)" aria-label="Zoom out" onClick={() => state.zoom(1 / 0.6)}>−</button>
          <button title="Show everything (0)" aria-label="Show everything" onClick={() => state.showAll()}>all</button>
        </div>
        <div class="strips">
          <canvas ref={canvases[2]} class="overview" role="img" aria-label="Lanes inside a call, over the whole run; drag to choose what is shown" {...overview} />
          <canvas ref={canvases[1]} class="axis" aria-hidden="true" />
        </div>
      </div>
      <div
        class="lanes"
        ref={scroller}
        tabIndex={0}
        role="application"
        aria-roledescription="timeline"
        aria-label={`Timeline of ${count(run.callCount)} calls. Arrow keys move, plus and minus zoom, Enter selects a call, Shift with the arrows goes to its neighbours, its caller and its calls. Question mark lists all keys.`}
        onScroll={(event) => {
          const top = (event.currentTarget as HTMLElement).scrollTop;
          if (drawing.current) {
            drawing.current.scrollTop = top;
            drawing.current.request();
          }
          setScrollTop(top);
        }}
        onKeyDown={(event) => {
          if ((event.target as HTMLElement).tagName === "BUTTON") return;
          if (drawing.current && onKey(event, drawing.current, scroller.current!)) event.preventDefault();
        }}
      >
        <div class="sticky" style={{ height: `${size.height}px` }}>
          <div class="labels" role="tree" aria-label="Lanes">{labels}</div>
          <div class="surface" ref={surface}>
            <canvas ref={canvases[0]} data-testid="calls" />
          </div>
        </div>
        <div style={{ height: `${Math.max(0, total - size.height)}px` }} />
      </div>
      {tip && <Tooltip tip={tip} run={run} />}
    </div>
  );
}

/** For scripts: what is on the canvas, and how long drawing took. */
export const exposed: { drawing: Drawing | null } = { drawing: null };
