// Calls summed by call path. A call directly inside one of its own region is a level of the same node, as in src/analysis.
import type { RankCalls } from "./calls";
import type { Lane, Run } from "./model";

export interface FlameNode {
  /** Of the region; -1: the root. */
  id: number;
  calls: number;
  /** ns of the outermost calls. */
  total: number;
  own: number;
  awaiting: number;
  children: FlameNode[];
}

interface Building extends FlameNode {
  byName: Map<number, Building>;
}

function newNode(id: number): Building {
  return { id, calls: 0, total: 0, own: 0, awaiting: 0, children: [], byName: new Map() };
}

function below(node: Building, id: number): Building {
  if (node.id === id) return node;
  let child = node.byName.get(id);
  if (!child) {
    child = newNode(id);
    node.byName.set(id, child);
    node.children.push(child);
  }
  return child;
}

/** Add the calls of a track, or the part of them that lies in [from, to]. */
function addTrack(root: Building, calls: RankCalls, row: number, depth: number, from: number, to: number): void {
  let above: Building[] = [];
  let aboveFirst = 0;
  for (let at = row; at < row + depth; at++) {
    const first = calls.rows[at];
    const here: Building[] = new Array(calls.rows[at + 1] - first);
    for (let i = first; i < calls.rows[at + 1]; i++) {
      const parent = calls.parent[i];
      const around = parent < 0 ? root : above[parent - aboveFirst];
      const length = Math.min(calls.end[i], to) - Math.max(calls.start[i], from);
      if (!around || length < 0 || calls.end[i] < from || calls.start[i] > to) continue;
      const node = (here[i - first] = below(around, calls.name[i]));
      node.calls++;
      node.own += length;
      if (around !== root) around.own -= length;
      if (node === around) continue;
      node.total += length;
      const whole = calls.end[i] - calls.start[i];
      if (calls.awaiting && whole > 0) node.awaiting += Math.min(calls.awaiting[i], whole) * (length / whole);
    }
    above = here;
    aboveFirst = first;
  }
}

/** Longest first, at every level; without recursion, since call paths can be deeper than the stack. */
function order(root: FlameNode): void {
  const left: FlameNode[] = [root];
  for (let node = left.pop(); node; node = left.pop()) {
    node.children.sort((a, b) => b.total - a.total);
    for (const child of node.children) left.push(child);
  }
}

function close(root: Building): FlameNode {
  for (const child of root.children) {
    root.calls += child.calls;
    root.total += child.total;
    root.awaiting += child.awaiting;
  }
  order(root);
  return root;
}

/** Of some lanes, over a stretch of time. */
export function flameOf(lanes: Iterable<Lane>, from = -Infinity, to = Infinity): FlameNode {
  const root = newNode(-1);
  for (const lane of lanes) {
    for (const track of lane.tracks) addTrack(root, lane.calls!, track.row, track.depth, from, to);
  }
  return close(root);
}

/** From the sums that the page has in the place of calls. */
export function storedFlame(run: Run): FlameNode {
  const root = newNode(-1);
  const nodes: Building[] = [];
  for (const [name, parent] of run.data.nodes ?? []) {
    const node = newNode(name);
    nodes.push(node);
    (parent < 0 ? root : nodes[parent]).children.push(node);
  }
  for (const [node, , calls, total, own] of run.data.paths ?? []) {
    nodes[node].calls += calls;
    nodes[node].total += total;
    nodes[node].own += own ?? 0;
  }
  return close(root);
}
