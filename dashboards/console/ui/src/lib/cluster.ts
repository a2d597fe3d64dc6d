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

/**
 * Builds the clusters of all zoom levels. radius is in screen pixels; scales are the
 * pixels per unit of the points at each level, rising.
 */
export function buildClusters(points: readonly Point[], radius: number, scales: readonly number[]): Levels {
  const levels: Cluster[][] = new Array(scales.length);
  let current: Cluster[] = points.map((p, i) => ({ id: p.key, x: p.x, y: p.y, members: [i] }));
  for (let level = scales.length - 1; level >= 0; level--) {
    current = merge(current, radius / scales[level]!);
    levels[level] = current;
  }
  return levels;
}

function merge(input: readonly Cluster[], r: number): Cluster[] {
  const cells = new Map<string, number[]>();
  const cell = (v: number) => Math.floor(v / r);
  input.forEach((c, i) => {
    const id = `${cell(c.x)},${cell(c.y)}`;
    const list = cells.get(id);
    if (list) list.push(i);
    else cells.set(id, [i]);
  });
  // The largest first: they pull in their neighbours, and stay where they are.
  const order = input.map((_, i) => i).sort((a, b) => input[b]!.members.length - input[a]!.members.length || a - b);
  const taken = new Uint8Array(input.length);
  const out: Cluster[] = [];
  for (const i of order) {
    if (taken[i]) continue;
    taken[i] = 1;
    const c = input[i]!;
    const group = [c];
    for (let gx = cell(c.x) - 1; gx <= cell(c.x) + 1; gx++) {
      for (let gy = cell(c.y) - 1; gy <= cell(c.y) + 1; gy++) {
        for (const j of cells.get(`${gx},${gy}`) ?? []) {
          const d = input[j]!;
          if (taken[j] || (d.x - c.x) ** 2 + (d.y - c.y) ** 2 > r * r) continue;
          taken[j] = 1;
          group.push(d);
        }
      }
    }
    out.push(group.length === 1 ? c : join(group));
  }
  return out;
}

function join(group: readonly Cluster[]): Cluster {
  let n = 0;
  let x = 0;
  let y = 0;
  let id = group[0]!.id;
  const members: number[] = [];
  for (const c of group) {
    const w = c.members.length;
    n += w;
    x += w * c.x;
    y += w * c.y;
    if (c.id < id) id = c.id;
    for (const m of c.members) members.push(m);
  }
  return { id, x: x / n, y: y / n, members };
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
