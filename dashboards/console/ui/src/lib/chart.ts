// What a chart shows, without how it is drawn.

import { formatClock, formatTick } from "./time";
import { type Between, gapsOf } from "./between";
import { type Sample, summarize } from "./history";

export interface Line {
  name: string;
  samples: readonly Sample[];
  /** What was between the samples, where it is known. */
  between?: readonly Between[];
  dashed?: boolean;
}

export type Tone = "good" | "warn" | "bad" | "info";

/** Values from one to another that mean something; infinite ones reach the edge. */
export interface Band {
  from: number;
  to: number;
  tone: Tone;
}

/** A moment, or with until a stretch, at which something happened; seconds since 1970. */
export interface Mark {
  t: number;
  until?: number;
  tone: Tone;
  text: string;
  /** Shown at the line; text stands in lists. */
  short?: string;
}

export type Palette = Record<Tone | "muted" | "grid", string> & { lines: readonly string[] };

const LINES = 8;
const DASHES = [undefined, [7, 4], [2, 3], [9, 3, 2, 3]] as const;

/** Lines beyond the colours go through them again, dashed, so that no two look the same. */
export function dashOf(i: number, colours: number, dashed?: boolean): number[] {
  return [...(DASHES[dashed ? 1 : Math.floor(i / colours) % DASHES.length] ?? [])];
}

/** The custom property with the colour of a line. */
export const lineVariable = (i: number): string => `--line-${(i % LINES) + 1}`;

/** The colours as the page has them now. */
export function paletteOf(host: HTMLElement): Palette {
  const read = (name: string) => {
    // A fresh element each time: on an old one, a transition would still show the last colour.
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    host.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  return {
    good: read("--green"), warn: read("--orange"), bad: read("--red"), info: read("--accent"), muted: read("--muted"), grid: read("--border"),
    lines: Array.from({ length: LINES }, (_, i) => read(lineVariable(i))),
  };
}

/** All times of the lines, and each line's values at them. */
export function unionOf(lines: readonly Line[]): [number[], (number | null)[][]] {
  const times = [...new Set(lines.flatMap((l) => l.samples.map(([t]) => t)))].sort((a, b) => a - b);
  const at = new Map(times.map((t, i) => [t, i]));
  return [
    times,
    lines.map((l) => {
      const column = new Array<number | null>(times.length).fill(null);
      for (const [t, v] of l.samples) column[at.get(t)!] = v;
      return column;
    }),
  ];
}

/** A little more than what the lines have, with the bounds that matter in view. */
export function scaleOf(lines: readonly Line[], show: readonly number[] = []): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  const take = (v: number) => {
    if (!Number.isFinite(v)) return;
    low = Math.min(low, v);
    high = Math.max(high, v);
  };
  for (const l of lines) {
    for (const [, v] of l.samples) if (v !== null) take(v);
    for (const b of l.between ?? []) for (const v of [b.least, b.largest]) if (v !== null) take(v);
  }
  show.forEach(take);
  if (low > high) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [0, low * 1.25] : [low * 1.25, 0];
  const pad = (high - low) * 0.06;
  // What can't be negative has a floor of 0 in the picture as well.
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

/** Steps of an axis of bytes: 1 KiB and 2 KiB, where others would be 1,000 B and 1.95 KiB. Below 1 B, which are rates, decimal ones. */
export const BYTE_STEPS: readonly number[] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, ...Array.from({ length: 60 }, (_, i) => 2 ** i)];

/** Bands of a signal: at or better than good, between, at or worse than bad. */
export function bandsOf(good: number, bad: number): Band[] {
  return good < bad
    ? [{ from: -Infinity, to: good, tone: "good" }, { from: good, to: bad, tone: "warn" }, { from: bad, to: Infinity, tone: "bad" }]
    : [{ from: -Infinity, to: bad, tone: "bad" }, { from: bad, to: good, tone: "warn" }, { from: good, to: Infinity, tone: "good" }];
}

/** The bands of a score. */
export const SCORE_BANDS: readonly Band[] = [{ from: 0, to: 40, tone: "bad" }, { from: 40, to: 75, tone: "warn" }, { from: 75, to: 100, tone: "good" }];

/** Where an alert's expression finds something. */
export function firingBands(bounds: readonly { op: string; value: number }[]): Band[] {
  let [from, to] = [-Infinity, Infinity];
  for (const { op, value } of bounds) {
    if (op === ">" || op === ">=") from = Math.max(from, value);
    else if (op === "<" || op === "<=") to = Math.min(to, value);
    else return [];
  }
  return from < to && (from > -Infinity || to < Infinity) ? [{ from, to, tone: "bad" }] : [];
}

/** The value of a line nearest to a time; undefined if it has none. */
export function nearest(samples: readonly Sample[], t: number): Sample | undefined {
  let best: Sample | undefined;
  for (const s of samples) if (!best || Math.abs(s[0] - t) < Math.abs(best[0] - t)) best = s;
  return best;
}

/** What a line says of a time: its point there, and what was between that and the one before. */
export interface Reading {
  t: number;
  v: number | null;
  between?: Between;
}

/** The reading of a time: the nearest point, or of a line that knows what was between, the step with the time in it. */
export function readingAt(line: Line, t: number): Reading | undefined {
  const between = line.between?.find((b) => t > b.from && t <= b.to);
  const sample = nearest(line.samples, between?.to ?? t);
  if (!between) return sample && { t: sample[0], v: sample[1] };
  return { t: between.to, v: sample && Math.abs(sample[0] - between.to) * 2 < between.to - between.from ? sample[1] : null, between };
}

/** What was between the points in words; "" where it says no more than the point. */
export function betweenText({ v, between: b }: Reading, format: (v: number) => string): string {
  if (!b) return "";
  const [value, least, largest] = [v, b.least, b.largest].map((x) => (x === null ? "" : format(x)));
  const parts = [least === largest ? (least === value ? "" : least!) : `${least} to ${largest}`];
  if (gapsOf([{ name: "", samples: [], between: [b] }]).length > 0) parts.push(b.coverage === 0 ? "no data" : `no data for ${Math.round(100 * (1 - b.coverage))} % of it`);
  return parts.filter(Boolean).join(", ");
}

const NAMED = 6;

/** What the lines say, for those who can't see them. */
export function textOf(label: string, lines: readonly Line[], format: (v: number) => string): string {
  const one = lines.length === 1;
  const parts = lines.slice(0, NAMED).map((l) => {
    const sum = summarize(l.samples, l.between);
    const name = one ? "" : `${l.name} `;
    if (!sum) return one ? "no samples in this time" : `${name}no samples`;
    const first = one || sum.first === null ? "" : `first ${format(sum.first)}, `;
    return `${name}${first}${sum.last === null ? "" : `now ${format(sum.last)}, `}lowest ${format(sum.min)} at ${formatClock(sum.minAt * 1000)}, highest ${format(sum.max)}${sum.gaps || gapsOf([l]).length > 0 ? "; with gaps" : ""}`;
  });
  if (lines.length > NAMED) parts.push(`and ${lines.length - NAMED} more lines`);
  return `${label}: ${parts.join("; ") || "no samples in this time"}`;
}

/** A moment in a chart of a stretch of time. */
export const momentOf = (t: number, range: number): string => (range > 20 * 3600 ? formatTick(t * 1000, 86_400) : formatClock(t * 1000));
