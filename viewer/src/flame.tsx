// The merged flame graph: a width is the time in a call path, summed over its calls.
import { hierarchy, partition, type HierarchyRectangularNode } from "d3-hierarchy";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { css, mix } from "./colour";
import { flameOf, storedFlame, type FlameNode } from "./flame-data";
import { count, duration, percent, visible } from "./format";
import { everyLane, lanePath, type Lane, type Run } from "./model";
import * as state from "./state";

const LEVEL = 22;
const NARROWEST = 2;
/** Levels below the one that was clicked; further ones are shown when one of the last is clicked. */
const LEVELS = 120;

type Node = HierarchyRectangularNode<FlameNode>;

interface Scope {
  key: string;
  title: string;
  lanes: () => Iterable<Lane>;
}

function scopesOf(run: Run): Scope[] {
  const scopes: Scope[] = [{ key: "all", title: "Whole run", lanes: () => everyLane(run.lanes) }];
  for (const lane of everyLane(run.lanes)) {
    if (lane.kind === "task" || lane.kind === "tasks") continue;
    const title = lanePath(lane);
    if (lane.kind === "thread" && lane.tracks.length > 0) scopes.push({ key: lane.key, title, lanes: () => [lane] });
    if (lane.children.length > 0) {
      scopes.push({ key: `${lane.key}/*`, title: `${title} and its ${lane.kind === "rank" ? "threads" : "tasks"}`, lanes: () => everyLane([lane]) });
    }
  }
  return scopes;
}

/** Nodes that are wide enough to be seen, of the part below `focus` and the path above it. */
function layOut(root: FlameNode, focus: FlameNode | null, width: number): { nodes: Node[]; first: number; levels: number } {
  const tree = hierarchy<FlameNode>(root, (node) => node.children).sum((node) => Math.max(0, node.own));
  const boxes = partition<FlameNode>().size([1, tree.height + 1])(tree);
  const target = boxes.find((node) => node.data === focus) ?? boxes;
  const scale = width / Math.max(target.x1 - target.x0, 1e-12);
  const nodes: Node[] = [];
  let levels = 0;
  const visit = (node: Node) => {
    const left = Math.max(0, (node.x0 - target.x0) * scale);
    const right = Math.min(width, (node.x1 - target.x0) * scale);
    if (right - left < NARROWEST || node.depth - target.depth > LEVELS) return;
    nodes.push(Object.assign(node, { x0: left, x1: right }));
    levels = Math.max(levels, node.depth + 1);
    node.children?.forEach(visit);
  };
  for (const above of target.ancestors().slice(1, LEVELS).reverse()) nodes.push(Object.assign(above, { x0: 0, x1: width }));
  const first = nodes.length ? nodes[0].depth : target.depth;
  visit(target);
  return { nodes, first, levels: levels - first };
}

function wording(run: Run, node: FlameNode, whole: number): string {
  const name = node.id < 0 ? "all" : visible(run.names[node.id]);
  const awaiting = node.awaiting > 0 ? `, ${duration(node.awaiting)} awaiting` : "";
  return `${name}: ${duration(node.total)} (${percent(node.total / whole)}), own ${duration(node.own)}${awaiting}, ${count(node.calls)} calls`;
}

export function Flame({ run }: { run: Run }) {
  const scopes = useMemo(() => scopesOf(run), [run]);
  const [scope, setScope] = useState("all");
  const [inView, setInView] = useState(false);
  const [focus, setFocus] = useState<FlameNode | null>(null);
  const [hovered, setHovered] = useState<FlameNode | null>(null);
  const [width, setWidth] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const root = useMemo(() => {
    if (run.ranks.length === 0) return storedFlame(run);
    const lanes = (scopes.find((one) => one.key === scope) ?? scopes[0]).lanes();
    const { from, to } = state.view.peek();
    return inView ? flameOf(lanes, from, to) : flameOf(lanes);
  }, [run, scope, inView]);
  useEffect(() => setFocus(null), [root]);
  useEffect(() => {
    const observer = new ResizeObserver(() => box.current && setWidth(box.current.clientWidth));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const { nodes, first, levels } = useMemo(() => layOut(root, focus, Math.max(width, 1)), [root, focus, width]);
  const scheme = state.scheme.value;
  const shown = state.shown.value;
  const whole = Math.max(root.total, 1);
  const told = hovered ?? focus ?? root;
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape" && focus) {
      setFocus(null);
      return;
    }
    const to = neighbour(nodes, event);
    if (!to) return;
    event.preventDefault();
    box.current?.querySelector<HTMLElement>(`[data-node="${nodes.indexOf(to)}"]`)?.focus();
  };
  return (
    <div class="flame">
      <div class="toolbar">
        <label>
          Show{" "}
          <select value={scope} disabled={run.ranks.length === 0} onChange={(event) => setScope((event.currentTarget as HTMLSelectElement).value)}>
            {scopes.map((one) => <option key={one.key} value={one.key}>{one.title}</option>)}
          </select>
        </label>
        {run.ranks.length > 0 && (
          <label class="check">
            <input type="checkbox" checked={inView} onChange={(event) => setInView((event.currentTarget as HTMLInputElement).checked)} />
            only what the timeline shows
          </label>
        )}
        {focus && <button onClick={() => setFocus(null)}>Show everything</button>}
      </div>
      <p class="flame-told" role="status">{wording(run, told, whole)}</p>
      <div class="flame-box" ref={box} role="group" aria-label="Flame graph; arrow keys move, Enter narrows it to a region, Escape widens it" onKeyDown={onKey}>
        <div style={{ position: "relative", height: `${levels * LEVEL}px` }}>
          {nodes.map((node, place) => {
            const { data } = node;
            const colour = data.id < 0 ? mix(scheme.background, scheme.accent, 0.35) : run.colours[data.id];
            const faded = shown !== null && data.id >= 0 && !shown[data.id];
            const awaits = data.total > 0 ? Math.min(1, data.awaiting / data.total) : 0;
            return (
              <button
                key={place}
                class={`flame-node${node.data === focus ? " focused" : ""}${faded ? " faded" : ""}`}
                data-node={place}
                tabIndex={place === 0 ? 0 : -1}
                aria-label={wording(run, data, whole)}
                style={{
                  left: `${node.x0}px`, width: `${Math.max(1, node.x1 - node.x0 - 1)}px`, top: `${(node.depth - first) * LEVEL}px`,
                  "--c": css(colour), "--pale": css(mix(scheme.background, colour, 0.3)), "--runs": `${(1 - awaits) * 100}%`,
                }}
                onMouseEnter={() => setHovered(data)}
                onMouseLeave={() => setHovered(null)}
                onFocus={() => setHovered(data)}
                onClick={() => {
                  setFocus(data === root ? null : data);
                  if (data.id >= 0) {
                    state.select(null);
                    state.chosenRegion.value = data.id;
                  }
                }}
              >
                {node.x1 - node.x0 > 24 ? (data.id < 0 ? `all · ${duration(data.total)}` : visible(run.names[data.id])) : ""}
              </button>
            );
          })}
        </div>
      </div>
      <p class="hint">
        {focus ? "Widths are shares of the region that was clicked. " : ""}Time is summed over lanes, so that it can be more than the run took.
        The hatched part of a bar is the share that was spent awaiting.
      </p>
    </div>
  );
}

function neighbour(nodes: Node[], event: KeyboardEvent): Node | undefined {
  const at = nodes[Number((event.target as HTMLElement).dataset.node)];
  if (!at) return undefined;
  const level = nodes.filter((node) => node.depth === at.depth).sort((a, b) => a.x0 - b.x0);
  const place = level.indexOf(at);
  switch (event.key) {
    case "ArrowUp": return at.parent ?? undefined;
    case "ArrowDown": return nodes.find((node) => node.parent === at);
    case "ArrowLeft": return level[place - 1];
    case "ArrowRight": return level[place + 1];
    default: return undefined;
  }
}
