import type { LogHistogram } from "../api/types";
import { parseTime } from "./time";

export interface Bar {
  /** ms */
  start: number;
  end: number;
  count: number;
}

export function barsOf(h: LogHistogram): Bar[] {
  const start = parseTime(h.start);
  if (start === undefined || !(h.stepSeconds > 0)) return [];
  const step = h.stepSeconds * 1000;
  return h.counts.map((count, i) => ({ start: start + i * step, end: start + (i + 1) * step, count }));
}

/** The time from one bar to another, in whatever order they were touched. */
export function spanOfBars(bars: readonly Bar[], a: number, b: number): { start: number; end: number } | undefined {
  const [first, last] = [bars[Math.min(a, b)], bars[Math.max(a, b)]];
  return first && last ? { start: first.start, end: last.end } : undefined;
}

/** A round figure for the top of the axis. */
export function niceMax(v: number): number {
  if (v <= 1) return 1;
  const p = 10 ** Math.floor(Math.log10(v));
  return ([1, 2, 5, 10].find((m) => m * p >= v) ?? 10) * p;
}
