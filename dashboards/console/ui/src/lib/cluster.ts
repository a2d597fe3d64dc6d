// Clusters of map markers. Each level is built from the next finer one, so that
// opening a cluster always shows parts of just that cluster.

export interface Point {
  key: string;
  x: number;
  y: number;
}

export interface Cluster {
  /** Stable while the same sites are around: named after its first member. */
  id: string;
  x: number;
  y: number;
  /** Indices into the points. */
  members: readonly number[];
}

/** Levels from the coarsest to the finest. */
export type Levels = readonly (readonly Cluster[])[];

/** More cells than any level has in a row, and few enough that the number of a cell is exact. */
const ROW = 2 ** 26;

/**
 * Builds the clusters of all zoom levels. radius is in screen pixels; scales are the
 * pixels per unit of the points at each level, rising. What is at x is at x + width as well: a world
 * goes on behind its end.
 */
export function buildClusters(points: readonly Point[], radius: number, scales: readonly number[], width = Infinity): Levels {
  const levels: Cluster[][] = new Array(scales.length);
  let current: Cluster[] = points.map((p, i) => ({ id: p.key, x: p.x, y: p.y, members: [i] }));
  for (let level = scales.length - 1; level >= 0; level--) {
    current = merge(current, radius / scales[level]!, width);
    levels[level] = current;
  }
  return levels;
}

/** Joins until no two are within r of each other: a joined one stands elsewhere than those that it was made of, perhaps next to another. */
function merge(input: readonly Cluster[], r: number, width: number): Cluster[] {
  let out = mergeOnce(input, r, width);
  for (let before = input.length; out.length < before; ) {
    before = out.length;
    out = mergeOnce(out, r, width);
  }
  return out;
}

function mergeOnce(input: readonly Cluster[], r: number, width: number): Cluster[] {
  // A cell by one number: a string for each would cost more than the rest.
  const cell = (v: number) => Math.floor(v / r);
  const id = (gx: number, gy: number) => gx * ROW + gy;
  const first = new Map<number, number>(); // of a cell
  const next = new Int32Array(input.length); // in the same cell
  for (let i = input.length - 1; i >= 0; i--) {
    const k = id(cell(input[i]!.x), cell(input[i]!.y));
    next[i] = first.get(k) ?? -1;
    first.set(k, i);
  }
  // The largest first: they pull in their neighbours, and hardly move.
  const order = Int32Array.from(input, (_, i) => i).sort((a, b) => input[b]!.members.length - input[a]!.members.length || a - b);
  const taken = new Uint8Array(input.length);
  const out: Cluster[] = [];
  for (const i of order) {
    if (taken[i]) continue;
    taken[i] = 1;
    const c = input[i]!;
    const group = [c];
    const pull = (x: number) => {
      const [cx, cy] = [cell(x), cell(c.y)];
      for (let gx = cx - 1; gx <= cx + 1; gx++) {
        for (let gy = cy - 1; gy <= cy + 1; gy++) {
          for (let j = first.get(id(gx, gy)) ?? -1; j >= 0; j = next[j]!) {
            if (taken[j]) continue;
            const d = input[j]!;
            if ((d.x - x) ** 2 + (d.y - c.y) ** 2 > r * r) continue;
            taken[j] = 1;
            group.push(d);
          }
        }
      }
    };
    pull(c.x);
    if (width < Infinity && c.x < r) pull(c.x + width);
    if (c.x > width - r) pull(c.x - width);
    out.push(group.length === 1 ? c : join(group, width));
  }
  return out;
}

function join(group: readonly Cluster[], width: number): Cluster {
  const at = group[0]!.x;
  let n = 0;
  let x = 0;
  let y = 0;
  let id = group[0]!.id;
  const members: number[] = [];
  for (const c of group) {
    const w = c.members.length;
    n += w;
    x += w * (c.x - at > width / 2 ? c.x - width : at - c.x > width / 2 ? c.x + width : c.x);
    y += w * c.y;
    if (c.id < id) id = c.id;
    for (const m of c.members) members.push(m);
  }
  x /= n;
  return { id, x: width === Infinity ? x : (x + width) % width, y: y / n, members };
}

export interface Spot {
  x: number;
  y: number;
}

/**
 * The nearest spot in the direction of an arrow key: those within 60° to each side
 * count, and being off the axis costs double. Undefined when there is none.
 */
export function nearestInDirection<T extends Spot>(from: Spot, spots: readonly T[], dx: number, dy: number): T | undefined {
  let best: T | undefined;
  let bestCost = Infinity;
  for (const s of spots) {
    const along = (s.x - from.x) * dx + (s.y - from.y) * dy;
    const across = Math.abs((s.x - from.x) * dy - (s.y - from.y) * dx);
    if (along <= 1 || across > along * 1.75) continue;
    const cost = along + 2 * across;
    if (cost < bestCost) {
      bestCost = cost;
      best = s;
    }
  }
  return best;
}
