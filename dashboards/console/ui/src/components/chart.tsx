import { type PointerEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { type Band, type Line, type Mark, betweenText, momentOf, paletteOf, readingAt, scaleOf, textOf } from "../lib/chart";
import { DASH, formatScore } from "../lib/format";
import { useStore } from "../lib/store";
import { onThemeChange } from "../lib/theme";
import { zone } from "../lib/zone";
import type { Area } from "./plot";

interface Props {
  lines: readonly Line[];
  /** Seconds since 1970. */
  start: number;
  end: number;
  height: number;
  /** What the lines are, for those who can't see them. */
  label: string;
  /** How a value reads; without one they are scores. */
  format?: (v: number) => string;
  /** The values are bytes, or bytes a second: the axis steps as these are counted. */
  bytes?: boolean;
  /** Least and largest value; without one, what the lines and bands have. */
  scale?: readonly [number, number];
  bands?: readonly Band[];
  marks?: readonly Mark[];
  /** Axes, and a place in the order of the Tab key. */
  axis?: boolean;
  /** The moment that is pointed at, where several charts share it. */
  at?: number | null;
  onAt?: (t: number | null) => void;
}

const NO_BANDS: readonly Band[] = [];
const NO_MARKS: readonly Mark[] = [];
const SHOWN = 8;

/**
 * Lines over time, of whatever: the one chart of the console. Pointing at it, or the arrow keys
 * on it, tell the values at a moment; its text tells the rest.
 */
export function Chart({ lines, start, end, height, label, format = formatScore, bytes = false, scale, bands = NO_BANDS, marks = NO_MARKS, axis, at: shared, onAt }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const [own, setOwn] = useState<number | null>(null);
  const [area, setArea] = useState<Area>({ left: 0, width: 0 });
  const [theme, setTheme] = useState(0);
  const [missing, setMissing] = useState(false);
  const inZone = useStore(zone);
  const hint = useId();
  const at = shared === undefined ? own : shared;
  const setAt = onAt ?? setOwn;
  const range = Math.max(1, end - start);
  useEffect(() => onThemeChange(() => requestAnimationFrame(() => setTheme((n) => n + 1))), []);
  useEffect(() => {
    let drop = () => {};
    let gone = false;
    void import("./plot")
      .then(({ draw }) => {
        if (gone || !host.current) return;
        const bounds = bands.flatMap((b) => [b.from, b.to]);
        drop = draw(host.current, { lines, bands, marks, start, end, scale: scale ?? scaleOf(lines, bounds), axis: axis ?? false, format, bytes, palette: paletteOf(host.current) }, height, setArea);
      })
      .catch(() => setMissing(true));
    return () => {
      gone = true;
      drop();
    };
  }, [lines, bands, marks, start, end, scale, axis, format, bytes, height, theme, inZone]);
  const text = useMemo(() => textOf(label, lines, format), [label, lines, format]);
  const point = (e: PointerEvent<HTMLElement>) => {
    const box = e.currentTarget.getBoundingClientRect();
    setAt(start + Math.min(1, Math.max(0, (e.clientX - box.left - area.left) / Math.max(1, area.width))) * range);
  };
  const values = at === null ? [] : lines.map((l) => ({ line: l, ...valueOf(l, at, format) }));
  const moment = values.find((v) => v.t !== undefined)?.t ?? at;
  const said = moment === null || moment === undefined ? "" : values.slice(0, SHOWN).map((v) => `${lines.length > 1 ? `${v.line.name} ` : ""}${v.value}${v.between && ` (${v.between})`}`).join(", ");
  const x = moment === null || moment === undefined ? 0 : area.left + ((moment - start) / range) * area.width;
  const step = useMemo(() => stepOf(lines, range), [lines, range]);
  return (
    <div className={axis ? "chart with-axis" : "chart"} onPointerMove={point} onPointerLeave={() => setAt(null)}>
      <div ref={host} role="img" aria-label={text} style={{ height }}>
        {missing && <p className="muted small">The part of the page that draws charts could not be loaded; reload to try again.</p>}
      </div>
      {axis && area.width > 0 && marks.some((m) => m.short) && (
        <div className="moments" aria-hidden>
          {marks.map(
            (m, i) =>
              m.short &&
              m.t >= start &&
              m.t <= end && (
                <span key={i} className={m.t - start > range * 0.7 ? "late" : undefined} title={m.text} style={{ left: area.left + ((m.t - start) / range) * area.width }}>
                  {m.short}
                </span>
              ),
          )}
        </div>
      )}
      {axis && (
        <>
          <input
            className="chart-keys"
            type="range"
            min={start}
            max={end}
            step={step}
            value={at ?? end}
            aria-label={`${label}: a moment of it`}
            aria-valuetext={moment === null || moment === undefined ? "not chosen; the arrow keys move it" : `${momentOf(moment, range)}: ${said}`}
            aria-describedby={hint}
            onChange={(e) => setAt(Number(e.target.value))}
            onFocus={() => at === null && setAt(end)}
            onBlur={() => setAt(null)}
          />
          <span id={hint} className="visually-hidden">
            {marks.length > 0 ? `With ${marks.length} marks: ${marks.slice(0, SHOWN).map((m) => `${momentOf(m.t, range)} ${m.text}`).join("; ")}` : ""}
          </span>
        </>
      )}
      {said !== "" && area.width > 0 && (
        <>
          <i className="cross" aria-hidden style={{ left: x }} />
          <span className="value" aria-hidden style={{ left: `clamp(60px, ${x}px, calc(100% - 60px))` }}>
            {values.slice(0, SHOWN).map((v, i) => (
              <span key={i}>
                {lines.length > 1 && `${v.line.name} `}
                <b>{v.value}</b> {v.between && `(${v.between}) `}
              </span>
            ))}
            {momentOf(moment!, range)}
          </span>
        </>
      )}
    </div>
  );
}

/** A line's value at a time, and what was before it. */
function valueOf(line: Line, at: number, format: (v: number) => string): { t: number | undefined; value: string; between: string } {
  const r = readingAt(line, at);
  return { t: r?.t, value: r?.v == null ? DASH : format(r.v), between: r ? betweenText(r, format) : "" };
}

/** How far an arrow key goes: one sample. */
function stepOf(lines: readonly Line[], range: number): number {
  const s = lines.find((l) => l.samples.length > 1)?.samples;
  return s ? Math.max(1, s[1]![0] - s[0]![0]) : Math.max(1, Math.round(range / 100));
}
