// What was between the points of a line: the least and largest value of each step, and how much of it has data.

import type { Matrix } from "../api/types";
import type { Range, Sample } from "./history";

/** The step that ends with a point; seconds since 1970. */
export interface Between {
  from: number;
  to: number;
  /** null where there is no data in it. */
  least: number | null;
  largest: number | null;
  /** In which share of the step there are data. */
  coverage: number;
}

/** What is looked at here of a chart's line. */
interface Drawn {
  name: string;
  samples: readonly Sample[];
  between?: readonly Between[];
}

/** The three answers of a range query, from start to end. */
export interface BetweenAnswer {
  start: number;
  end: number;
  step: number;
  least: Matrix;
  largest: Matrix;
  coverage: Matrix;
}

/** Points as close as this leave nothing to tell of what is between them, in seconds. */
const CLOSE = 60;
/** Less than this share of a step is no gap: a sample that was late. */
const LATE = 0.05;

export const hasBetween = (r: Range): boolean => r.step > CLOSE;

/**
 * The steps of each line, from its first data to the end; key names the line of a series, undefined
 * leaves it out.
 */
export function betweenOf(a: BetweenAnswer, key: (metric: Record<string, string>) => string | undefined): Map<string, Between[]> {
  const n = Math.round((a.end - a.start) / a.step);
  const raw = new Map<string, (Between | undefined)[]>();
  const put = (m: Matrix, set: (b: Between, v: number) => void) => {
    for (const series of m.data?.result ?? []) {
      const name = key(series.metric);
      if (name === undefined) continue;
      let steps = raw.get(name);
      if (!steps) raw.set(name, (steps = new Array<Between | undefined>(n + 1).fill(undefined)));
      for (const [t, v] of series.values) {
        const i = Math.round((t - a.start) / a.step);
        const x = Number(v);
        if (Number.isFinite(x)) set((steps[i] ??= { from: a.start + (i - 1) * a.step, to: a.start + i * a.step, least: null, largest: null, coverage: 0 }), x);
      }
    }
  };
  put(a.least, (b, v) => (b.least = Math.min(v, b.least ?? v)));
  put(a.largest, (b, v) => (b.largest = Math.max(v, b.largest ?? v)));
  put(a.coverage, (b, v) => (b.coverage = Math.max(v, b.coverage)));
  const out = new Map<string, Between[]>();
  for (const [name, steps] of raw) {
    const first = steps.findIndex((b) => b !== undefined);
    const all: Between[] = [];
    // The step that ends with the first point is before the chart.
    for (let i = Math.max(first, 1); i <= n && first >= 0; i++) all.push(steps[i] ?? { from: a.start + (i - 1) * a.step, to: a.start + i * a.step, least: null, largest: null, coverage: 0 });
    // Before its first data a line has no gap; it was not there.
    if (first > 0) all[0] = { ...all[0]!, coverage: 1 };
    out.set(name, all);
  }
  return out;
}

/** For what comes and goes with what is wrong: a time without it is no gap. */
export const withoutGaps = (steps: ReadonlyMap<string, Between[]>): Map<string, Between[]> => new Map([...steps].map(([name, list]) => [name, list.map((b) => ({ ...b, coverage: 1 }))]));

/** As many lines have their own colours; more would hide each other with what was between their points. */
export const APART = 8;

/** The lines with what was between their points. What is only there between the points has a line without points. */
export function withBetween(lines: readonly (Drawn & { key?: string })[], steps: ReadonlyMap<string, Between[]> | undefined): Drawn[] {
  if (!steps) return [...lines];
  const rest = new Map(steps);
  const out: Drawn[] = lines.map((l) => {
    const key = l.key ?? l.name;
    const between = rest.get(key);
    rest.delete(key);
    return between ? { ...l, between } : l;
  });
  for (const [name, between] of rest) if (between.length > 0) out.push({ name, samples: between.map((b) => [b.to, null] as const), between });
  return out;
}

/** The steps in which no line has all data, and what share of them is missing. */
export function gapsOf(lines: readonly Drawn[]): { from: number; to: number; share: number }[] {
  const at = new Map<number, Between>();
  for (const l of lines) for (const b of l.between ?? []) if ((at.get(b.to)?.coverage ?? -1) < b.coverage) at.set(b.to, b);
  return [...at.values()].map((b) => ({ from: b.from, to: b.to, share: 1 - b.coverage })).filter((g) => g.share >= LATE);
}
