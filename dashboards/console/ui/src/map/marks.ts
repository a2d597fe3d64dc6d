// From sites to what is drawn: clusters of every level, and the marks of the one in view.

import { useMemo, useRef } from "react";
import { buildClusters, type Point } from "../lib/cluster";
import { siteKey } from "../lib/site";
import { compareMarks, LARGEST_CLUSTER, type Mark, markOf, type Spot } from "./markers";
import { MAX_SCALE, type View } from "./view";
import { project, WORLD } from "./world";

/** Pixels within which sites become one mark: as wide as the largest, so that no two of them touch. */
export const CLUSTER_RADIUS = LARGEST_CLUSTER;
const LEVELS_PER_OCTAVE = 2;

/** Whether the parts of a cluster, so many units across, never come apart: they are at one place, or the map is as close as it gets. */
export const staysTogether = (spread: number, scale: number): boolean => spread * MAX_SCALE < CLUSTER_RADIUS || scale > MAX_SCALE * 0.999;

/** The array itself while keys and positions stay the same: colours change all the time, places do not. */
export function usePoints(sites: readonly Spot[]): readonly Point[] {
  const last = useRef<Point[]>([]);
  return useMemo(() => {
    const next = sites.map((s) => ({ key: siteKey(s), ...project(s.place!.latitude, s.place!.longitude) }));
    const old = last.current;
    const same = old.length === next.length && next.every((p, i) => p.key === old[i]!.key && p.x === old[i]!.x && p.y === old[i]!.y);
    if (!same) last.current = next;
    return last.current;
  }, [sites]);
}

/** A mark and where it is in the box, in pixels. */
export interface VisibleMark {
  mark: Mark;
  px: number;
  py: number;
  x: number;
  y: number;
}

/** The marks at the view's scale, and those of them that are in sight. sites and points go together. */
export function useMarks(sites: readonly Spot[], points: readonly Point[], view: View | null, minScale: number, kinds: number): { marks: readonly Mark[]; visible: readonly VisibleMark[] } {
  const levels = useMemo(() => {
    const scales: number[] = [];
    for (let k = minScale; k < MAX_SCALE * 1.01; k *= 2 ** (1 / LEVELS_PER_OCTAVE)) scales.push(k);
    return { scales, levels: buildClusters(points, CLUSTER_RADIUS, scales, WORLD) };
  }, [points, minScale]);
  const level = view ? Math.max(0, levels.scales.findLastIndex((k) => k <= view.transform.k * 1.0001)) : 0;
  const marks = useMemo(
    () => (levels.levels[level] ?? []).map((c) => markOf(c.id, c.x, c.y, c.members.flatMap((i) => sites[i] ?? []), kinds)).sort(compareMarks),
    [levels, level, sites, kinds],
  );
  const visible = useMemo<VisibleMark[]>(() => {
    if (!view) return [];
    const { x, y, k } = view.transform;
    return marks.flatMap((mark) => {
      const wide = WORLD * k; // the one repetition that is nearest to the middle
      const px = mark.x * k + x - Math.round((mark.x * k + x - view.width / 2) / wide) * wide;
      const py = mark.y * k + y;
      return px < -30 || py < -30 || px > view.width + 30 || py > view.height + 30 ? [] : [{ mark, px, py, x: px, y: py }];
    });
  }, [marks, view]);
  return { marks, visible };
}
