// uPlot behind the chart: what is drawn on the canvas. It is a bundle of its own, fetched
// with the first chart.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { gapsOf } from "../lib/between";
import { type Band, BYTE_STEPS, dashOf, type Line, type Mark, type Palette, unionOf } from "../lib/chart";
import { formatTick } from "../lib/time";
import { zoneName } from "../lib/zone";

export interface Picture {
  lines: readonly Line[];
  bands: readonly Band[];
  marks: readonly Mark[];
  start: number;
  end: number;
  /** Least and largest value of the picture. */
  scale: readonly [number, number];
  axis: boolean;
  format: (v: number) => string;
  /** The values are bytes, or bytes a second. */
  bytes: boolean;
  palette: Palette;
}

/** Where the lines are in their host, in CSS pixels. */
export interface Area {
  left: number;
  width: number;
}

/** Draws into host, which decides the size; the returned function takes it away. */
export function draw(host: HTMLElement, p: Picture, height: number, onArea: (a: Area) => void): () => void {
  const [xs, columns] = unionOf(p.lines);
  const font = `11px ${getComputedStyle(host).fontFamily}`;
  const axis = (extra: Partial<uPlot.Axis>): uPlot.Axis => ({
    show: p.axis,
    font,
    stroke: p.palette.muted,
    grid: { stroke: p.palette.grid, width: 1 },
    ticks: { show: false },
    ...extra,
  });
  const ratio = () => uPlot.pxRatio;
  const options: uPlot.Options = {
    width: Math.max(40, host.clientWidth),
    height,
    ...(p.axis ? { padding: [8, RIGHT, 0, 0] } : { padding: [2, 0, 2, 0] }),
    legend: { show: false },
    cursor: { show: false },
    select: { show: false, left: 0, top: 0, width: 0, height: 0 },
    tzDate: (t) => uPlot.tzDate(new Date(t * 1000), zoneName()),
    scales: { x: { time: true, range: [p.start, p.end] }, y: { range: [p.scale[0], p.scale[1]] } },
    axes: [
      axis({ space: 96, size: 26, values: (u, at) => at.map((t) => fitting(formatTick(t * 1000, p.end - p.start), u, p, t)) }),
      axis({ ...(p.bytes && { incrs: [...BYTE_STEPS] }), space: 32, size: (_u, values) => 14 + Math.max(0, ...(values ?? []).map((v) => v.length)) * 6.6, values: (_u, at) => at.map(p.format) }),
    ],
    series: [
      {},
      ...p.lines.map((l, i): uPlot.Series => ({
        label: l.name,
        stroke: p.palette.lines[i % p.palette.lines.length]!,
        width: p.lines.length > 1 ? 1.8 : 1.6,
        dash: dashOf(i, p.palette.lines.length, l.dashed),
        spanGaps: false,
        points: { show: (_u, s, from, to) => lonely(columns[s - 1]!, from, to), size: 4 },
      })),
    ],
    hooks: {
      drawClear: [
        (u) => {
          for (const b of p.bands) band(u, p, b);
          for (const i of p.lines.keys()) between(u, p, i);
          gaps(u, p);
        },
      ],
      draw: [
        (u) => {
          const crowded = p.marks.length * APART * ratio() > u.bbox.width;
          for (const m of p.marks) mark(u, p, m, crowded);
        },
      ],
      ready: [(u) => onArea({ left: u.bbox.left / ratio(), width: u.bbox.width / ratio() })],
      setSize: [(u) => onArea({ left: u.bbox.left / ratio(), width: u.bbox.width / ratio() })],
    },
  };
  const plot = new uPlot(options, [xs, ...columns], host);
  const watch = new ResizeObserver(() => {
    if (host.clientWidth > 0 && host.clientWidth !== plot.width) plot.setSize({ width: host.clientWidth, height });
  });
  watch.observe(host);
  return () => {
    watch.disconnect();
    plot.destroy();
  };
}

/** How wide a character of a tick is about, and what is right of the lines, in CSS pixels. */
const CHARACTER = 6.4;
const RIGHT = 8;

/** How high the foot is that shows missing data. */
const FOOT = 5;

/** A tick's text, or nothing where it would be cut off at the right. */
function fitting(text: string, u: uPlot, p: Picture, t: number): string {
  const room = ((p.end - t) / (p.end - p.start)) * (u.width - 50) + RIGHT;
  return (text.length * CHARACTER) / 2 > room ? "" : text;
}

/** Points are drawn only where a line would leave a value unseen: one between gaps. */
function lonely(values: readonly (number | null)[], from: number, to: number): boolean {
  for (let i = from; i <= to; i++) if (values[i] != null && values[i - 1] == null && values[i + 1] == null) return true;
  return false;
}

function band(u: uPlot, p: Picture, b: Band): void {
  const y = (v: number) => u.valToPos(Math.min(p.scale[1], Math.max(p.scale[0], v)), "y", true);
  const [top, bottom] = [y(b.to), y(b.from)];
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = p.palette[b.tone];
  ctx.globalAlpha = 0.1;
  ctx.fillRect(bbox.left, top, bbox.width, bottom - top);
  ctx.globalAlpha = 0.8;
  ctx.strokeStyle = p.palette[b.tone];
  ctx.lineWidth = uPlot.pxRatio;
  ctx.setLineDash([3 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
  for (const v of [b.from, b.to]) {
    if (v <= p.scale[0] || v >= p.scale[1]) continue;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y(v));
    ctx.lineTo(bbox.left + bbox.width, y(v));
    ctx.stroke();
  }
  ctx.restore();
}

/** Columns from the least to the largest value of each step, and no thinner than can be seen. */
function between(u: uPlot, p: Picture, i: number): void {
  const { ctx, bbox } = u;
  const least = 2 * uPlot.pxRatio;
  const y = (v: number) => u.valToPos(Math.min(p.scale[1], Math.max(p.scale[0], v)), "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = p.palette.lines[i % p.palette.lines.length]!;
  ctx.globalAlpha = p.lines.length > 1 ? 0.25 : 0.4;
  for (const b of p.lines[i]!.between ?? []) {
    if (b.least === null || b.largest === null) continue;
    const [left, right, top, bottom] = [u.valToPos(b.from, "x", true), u.valToPos(b.to, "x", true), y(b.largest), y(b.least)];
    const height = Math.max(least, bottom - top);
    ctx.fillRect(left, (top + bottom - height) / 2, Math.max(least, right - left), height);
  }
  ctx.restore();
}

/** A foot under the steps of which some is missing, the darker the more. */
function gaps(u: uPlot, p: Picture): void {
  const { ctx, bbox } = u;
  const height = FOOT * uPlot.pxRatio;
  ctx.save();
  ctx.fillStyle = p.palette.muted;
  for (const g of gapsOf(p.lines)) {
    const left = Math.max(bbox.left, u.valToPos(g.from, "x", true));
    ctx.globalAlpha = 0.35 + 0.65 * g.share;
    ctx.fillRect(left, bbox.top + bbox.height - height, Math.max(2 * uPlot.pxRatio, u.valToPos(g.to, "x", true) - left), height);
  }
  ctx.restore();
}

/** How far apart marks are, in pixels, where they stand behind the lines as high as the chart. Those of a busy fleet would hide them. */
const APART = 20;

/** A mark as high as the chart, or crowded together with others a short one at its top. */
function mark(u: uPlot, p: Picture, m: Mark, crowded: boolean): void {
  const at = (t: number) => u.valToPos(Math.min(p.end, Math.max(p.start, t)), "x", true);
  const { ctx, bbox } = u;
  ctx.save();
  const colour = p.palette[m.tone];
  if (m.until !== undefined) {
    ctx.fillStyle = colour;
    ctx.globalAlpha = 0.12;
    ctx.fillRect(at(m.t), bbox.top, Math.max(1, at(m.until) - at(m.t)), bbox.height);
  }
  if (m.t >= p.start && m.t <= p.end) {
    ctx.globalAlpha = 0.75;
    ctx.strokeStyle = colour;
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(at(m.t), bbox.top);
    ctx.lineTo(at(m.t), bbox.top + (crowded ? 10 * uPlot.pxRatio : bbox.height));
    ctx.stroke();
  }
  ctx.restore();
}
