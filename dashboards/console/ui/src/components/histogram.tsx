import { type KeyboardEvent, type PointerEvent, useMemo, useRef, useState } from "react";
import type { LogHistogram } from "../api/types";
import { formatCount, plural } from "../lib/format";
import { barsOf, niceMax, spanOfBars } from "../lib/histogram";
import { formatClock, formatTick } from "../lib/time";

interface Props {
  histogram: LogHistogram;
  /** A click on a bar, or a drag over several, asks for just this time (ms). */
  onSpan: (start: number, end: number) => void;
  height?: number;
}

/**
 * How many lines came when. One bar at a time is in the tab order; arrow keys go to
 * the others, with Shift they mark several, Enter narrows the range to them.
 */
export function Histogram({ histogram, onSpan, height = 64 }: Props) {
  const bars = useMemo(() => barsOf(histogram), [histogram]);
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const [from, setFrom] = useState<number | null>(null);
  const dragging = useRef(false);
  const top = niceMax(bars.reduce((m, b) => Math.max(m, b.count), 0));
  if (bars.length === 0) return null;
  const range = bars.at(-1)!.end - bars[0]!.start;
  const home = Math.min(at ?? bars.length - 1, bars.length - 1);
  const marked = (i: number) => from !== null && at !== null && i >= Math.min(from, at) && i <= Math.max(from, at);

  const indexAt = (e: PointerEvent) => {
    const r = box.current!.getBoundingClientRect();
    return Math.min(bars.length - 1, Math.max(0, Math.floor(((e.clientX - r.left) / r.width) * bars.length)));
  };
  const pick = (a: number, b: number) => {
    const s = spanOfBars(bars, a, b);
    setFrom(null);
    setAt(null);
    if (s) onSpan(s.start, s.end);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === "Escape") return setFrom(null);
    const to = { ArrowRight: home + 1, ArrowLeft: home - 1, Home: 0, End: bars.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const target = Math.min(Math.max(to, 0), bars.length - 1);
    if (e.shiftKey) setFrom((f) => f ?? home);
    else setFrom(null);
    setAt(target);
    box.current?.querySelectorAll<HTMLElement>("button")[target]?.focus();
  };
  const clock = (i: number) => `${formatClock(bars[i]!.start)} to ${formatClock(bars[i]!.end)}`;
  const tip = at === null ? undefined : spanOfBars(bars, from ?? at, at);
  const tipCount = at === null ? 0 : bars.slice(Math.min(from ?? at, at), Math.max(from ?? at, at) + 1).reduce((n, b) => n + b.count, 0);
  return (
    <div className="chart histogram">
      <div
        ref={box}
        className="hist-bars"
        role="group"
        aria-label={`Lines over time, ${plural(bars.length, "bar")}. Arrow keys go from bar to bar, Shift marks several, Enter narrows the time to them.`}
        style={{ height }}
        onKeyDown={onKeyDown}
        onPointerDown={(e) => {
          if (e.button !== 0) return;
          dragging.current = true;
          e.currentTarget.setPointerCapture(e.pointerId);
          const i = indexAt(e);
          setFrom(i);
          setAt(i);
        }}
        onPointerMove={(e) => {
          if (dragging.current || e.pointerType === "mouse") setAt(indexAt(e));
        }}
        onPointerUp={(e) => {
          if (!dragging.current) return;
          dragging.current = false;
          pick(from ?? indexAt(e), indexAt(e));
        }}
        onPointerCancel={() => {
          dragging.current = false;
          setFrom(null);
        }}
        onPointerLeave={() => {
          if (!dragging.current && from === null) setAt(null);
        }}
        onBlur={(e) => {
          if (!dragging.current && !e.currentTarget.contains(e.relatedTarget)) {
            setFrom(null);
            setAt(null);
          }
        }}
      >
        <i className="hist-grid" aria-hidden />
        {bars.map((b, i) => (
          <button
            key={i}
            type="button"
            tabIndex={i === home ? 0 : -1}
            className={marked(i) ? "marked" : undefined}
            aria-label={`${clock(i)}: ${plural(b.count, "line")}`}
            onFocus={(e) => {
              if (e.currentTarget.matches(":focus-visible")) setAt(i);
            }}
            onClick={(e) => {
              if (e.detail === 0) pick(from ?? i, i); // the keyboard's; the pointer's are taken above
            }}
          >
            <i style={{ height: b.count === 0 ? 0 : `max(2px, ${(b.count / top) * 100}%)` }} />
          </button>
        ))}
      </div>
      <span className="hist-top" aria-hidden>
        {formatCount(top)}
      </span>
      {tip && (
        <span className="value" aria-hidden style={{ left: `${Math.min(88, Math.max(12, (((tip.start + tip.end) / 2 - bars[0]!.start) / range) * 100))}%` }}>
          <b>{formatCount(tipCount)}</b> {formatClock(tip.start)}–{formatClock(tip.end)}
        </span>
      )}
      <div className="axis" aria-hidden>
        {[0, 0.25, 0.5, 0.75, 1].map((f) => (
          <span key={f}>{formatTick(bars[0]!.start + f * range, range / 1000)}</span>
        ))}
      </div>
    </div>
  );
}
