import type { Matrix } from "../api/types";
import { seriesName, withoutName } from "./promql";

/** Seconds since 1970 and the value; null where there is none. */
export type Sample = readonly [t: number, v: number | null];

export interface Range {
  id: string;
  label: string;
  seconds: number;
  step: number;
}

/** 120 to 180 points a line: as many as a chart can show. */
export const RANGES: readonly Range[] = [
  { id: "1h", label: "1 h", seconds: 3600, step: 30 },
  { id: "6h", label: "6 h", seconds: 6 * 3600, step: 180 },
  { id: "24h", label: "24 h", seconds: 24 * 3600, step: 720 },
  { id: "7d", label: "7 d", seconds: 7 * 86_400, step: 3600 },
  { id: "30d", label: "30 d", seconds: 30 * 86_400, step: 4 * 3600 },
];

/** The range of that id; the first for none. */
export const rangeOf = (id: string | null | undefined, ranges: readonly Range[] = RANGES): Range => ranges.find((r) => r.id === id) ?? ranges[0]!;

/** A PromQL string literal. */
export const promString = (s: string): string => JSON.stringify(s);

/** Start and end on whole steps, or minutes: a refresh asks for the same points, and the last one is of now even where a step takes hours. */
export function alignedWindow(nowSeconds: number, r: Range): { start: number; end: number } {
  const grid = Math.min(r.step, 60);
  const end = Math.floor(nowSeconds / grid) * grid;
  return { start: end - r.seconds, end };
}

/**
 * Lines of a range query by the value of a label ("" without one), with a null where
 * Prometheus leaves a step out, so that gaps stay gaps. Several series with the same
 * value of the label (a site that changed its region) become one line.
 */
export function linesOf(m: Matrix, label: string, start: number, end: number, step: number): Map<string, Sample[]> {
  const raw = new Map<string, Map<number, number>>();
  for (const series of m.data?.result ?? []) {
    const name = series.metric[label] ?? "";
    let line = raw.get(name);
    if (!line) raw.set(name, (line = new Map()));
    for (const [t, v] of series.values) {
      const x = Number(v);
      if (Number.isFinite(x)) line.set(Math.round((t - start) / step), x);
    }
  }
  const out = new Map<string, Sample[]>();
  const n = Math.round((end - start) / step);
  for (const [name, line] of raw) {
    const samples: Sample[] = [];
    for (let i = 0; i <= n; i++) samples.push([start + i * step, line.get(i) ?? null]);
    out.set(name, samples);
  }
  return out;
}

/** Every series of a range query as a line of its own, with its labels as its name, and without the metric's as its key. */
export function linesByName(m: Matrix, start: number, end: number, step: number): { name: string; key: string; samples: Sample[] }[] {
  return (m.data?.result ?? []).map((series) => ({ name: seriesName(series.metric), key: withoutName(series.metric), samples: linesOf({ status: "success", data: { resultType: "matrix", result: [{ ...series, metric: {} }] } }, "", start, end, step).get("")! }));
}

export interface Summary {
  /** null for a line that has values between its points alone. */
  first: number | null;
  last: number | null;
  min: number;
  minAt: number;
  max: number;
  gaps: boolean;
}

/** What a line says, with what is known of between its samples (lib/between.ts), for those who can't see it; undefined for one without values. */
export function summarize(samples: readonly Sample[], between: readonly { to: number; least: number | null; largest: number | null }[] = []): Summary | undefined {
  const out: Summary = { first: null, last: null, min: Infinity, minAt: 0, max: -Infinity, gaps: false };
  const take = (t: number, least: number, largest: number) => {
    if (least < out.min) [out.min, out.minAt] = [least, t];
    out.max = Math.max(out.max, largest);
  };
  for (const [t, v] of samples) {
    if (v === null) {
      out.gaps = true;
      continue;
    }
    out.first ??= v;
    out.last = v;
    take(t, v, v);
  }
  for (const b of between) if (b.least !== null && b.largest !== null) take(b.to, b.least, b.largest);
  return out.min <= out.max ? out : undefined;
}
