import { describe, expect, it } from "vitest";
import { buildClusters, nearestInDirection, type Point } from "./cluster";

const grid = (n: number, step: number): Point[] =>
  Array.from({ length: n * n }, (_, i) => ({ key: `p${String(i).padStart(5, "0")}`, x: (i % n) * step, y: Math.floor(i / n) * step }));

describe("buildClusters", () => {
  const points = grid(20, 7);
  const scales = [0.5, 1, 2, 4, 8, 16];
  const levels = buildClusters(points, 36, scales);

  it("holds every point once on every level", () => {
    for (const level of levels) {
      expect(level.flatMap((c) => c.members).sort((a, b) => a - b)).toEqual(points.map((_, i) => i));
    }
  });

  it("comes apart as the scale grows", () => {
    const counts = levels.map((l) => l.length);
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
    expect(counts[0]).toBeLessThan(20);
    expect(counts.at(-1)).toBe(points.length); // 7 units × 16 px are further apart than the radius
  });

  it("nests: a cluster's parts hold no foreign sites", () => {
    for (let i = 0; i + 1 < levels.length; i++) {
      for (const fine of levels[i + 1]!) {
        const parents = levels[i]!.filter((c) => fine.members.some((m) => c.members.includes(m)));
        expect(parents).toHaveLength(1);
      }
    }
  });

  it("has the mean of its members as centre, and the first of their names as its own", () => {
    for (const c of levels[0]!) {
      const xs = c.members.map((m) => points[m]!.x);
      expect(c.x).toBeCloseTo(xs.reduce((a, b) => a + b) / xs.length);
      expect(c.id).toBe(c.members.map((m) => points[m]!.key).sort()[0]);
    }
  });

  it("keeps sites at one place together", () => {
    const same = [0, 1, 2].map((i) => ({ key: `s${i}`, x: 5, y: 5 }));
    expect(buildClusters(same, 36, [1, 1e6]).map((l) => l.length)).toEqual([1, 1]);
  });

  // A cluster stands in the middle of its members, which may be nearer to a neighbour than the one that pulled them in.
  it.each([1, 2, 3, 4])("leaves no two within the radius of each other (%i)", (seed) => {
    const width = 1000;
    let state = seed;
    const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
    const towns = Array.from({ length: 80 }, () => ({ x: random() * width, y: random() * 500, sites: 1 + Math.floor(random() ** 4 * 200) }));
    const points = towns.flatMap((t, i) => Array.from({ length: t.sites }, (_, j) => ({ key: `${i}-${j}`, x: (t.x + random() + width) % width, y: t.y + random() })));
    const levels = buildClusters(points, 36, scales, width);
    for (const [level, scale] of scales.entries()) {
      const marks = levels[level]!;
      const nearest = Math.min(...marks.flatMap((a, i) => marks.slice(i + 1).map((b) => Math.hypot(Math.min(Math.abs(a.x - b.x), width - Math.abs(a.x - b.x)), a.y - b.y))));
      expect(nearest * scale).toBeGreaterThan(36);
    }
  });

  it("goes on behind the end of the world", () => {
    const ends = [{ key: "chatham", x: 999, y: 5 }, { key: "fiji", x: 2, y: 5 }, { key: "samoa", x: 3, y: 5 }, { key: "far", x: 500, y: 5 }];
    const [level] = buildClusters(ends, 36, [8], 1000);
    expect(level!.map((c) => c.members.length).sort()).toEqual([1, 3]);
    const across = level!.find((c) => c.members.length === 3)!;
    expect(across.x).toBeCloseTo((999 + 1002 + 1003) / 3 - 1000);
    expect(across.id).toBe("chatham");
    expect(buildClusters(ends, 36, [8])[0]!.map((c) => c.members.length).sort()).toEqual([1, 1, 2]);
    const west = buildClusters([{ key: "a", x: 999, y: 5 }, { key: "b", x: 999, y: 5 }, { key: "c", x: 1, y: 5 }], 36, [8], 1000)[0]!;
    expect(west.map((c) => c.x)).toEqual([expect.closeTo(999 + 2 / 3)]);
  });

  it("takes no points, and 10,000", () => {
    expect(buildClusters([], 36, [1, 2])).toEqual([[], []]);
    const many = buildClusters(grid(100, 1), 36, [1, 2, 4, 8, 16, 32, 64]);
    expect(many.every((l) => l.reduce((n, c) => n + c.members.length, 0) === 10_000)).toBe(true);
  });
});

describe("nearestInDirection", () => {
  const from = { x: 0, y: 0 };
  const right = { x: 50, y: 5 };
  const far = { x: 400, y: 0 };
  const up = { x: 10, y: -60 };
  const steep = { x: 5, y: 90 };
  const all = [right, far, up, steep];

  it("finds the neighbour on each side", () => {
    expect(nearestInDirection(from, all, 1, 0)).toBe(right);
    expect(nearestInDirection(from, all, 0, -1)).toBe(up);
    expect(nearestInDirection(from, all, 0, 1)).toBe(steep);
  });

  it("finds none where there is none", () => {
    expect(nearestInDirection(from, all, -1, 0)).toBeUndefined();
    expect(nearestInDirection(from, [{ x: 0, y: 0 }], 1, 0)).toBeUndefined();
  });
});
