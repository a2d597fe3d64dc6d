import { type PointerEvent, useMemo, useCallback } from "react";
import { formatScore } from "../lib/format";
import { type Sample, strokes, summarize } from "../lib/history";
import { formatClock, formatTick } from "../lib/time";

interface Props {
  samples: readonly Sample[];
  start: number;
  end: number;
  height: number;
  /** What the line is, for those who can't see it. */
  label: string;
  axis?: boolean;
  /** The moment that is pointed at in any of the page's charts. */
  at: number | null;
  onAt: (t: number | null) => void;
}

const WIDTH = 400;

/** A score's history from 0 to 100, with the bounds between the colours. */
export function Chart({ samples, start, end, height, label, axis, at, onAt }: Props) {
  const x = useCallback((t: number) => ((t - start) / (end - start)) * WIDTH, [start, end]);
  const y = useCallback((v: number) => height - (Math.min(100, Math.max(0, v)) / 100) * height, [height]);
  const paths = useMemo(
    () =>
      strokes(samples).map((run) => {
        const d = run.map((p, i) => `${i === 0 ? "M" : "L"}${x(p.t).toFixed(1)} ${y(p.v).toFixed(1)}`).join("");
        return run.length === 1 ? `${d}h0.01` : d;
      }),
    [samples, x, y],
  );
  const sum = summarize(samples);
  const text = sum
    ? `${label}: now ${formatScore(sum.last)}, lowest ${formatScore(sum.min)} at ${formatClock(sum.minAt * 1000)}, highest ${formatScore(sum.max)}${sum.gaps ? "; with gaps" : ""}`
    : `${label}: no samples in this time`;
  const point = (e: PointerEvent<HTMLElement>) => {
    const box = e.currentTarget.getBoundingClientRect();
    onAt(start + Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)) * (end - start));
  };
  const near = at === null ? undefined : nearest(samples, at);
  const range = end - start;
  return (
    <div className="chart" onPointerMove={point} onPointerLeave={() => onAt(null)}>
      <svg viewBox={`0 0 ${WIDTH} ${height}`} height={height} preserveAspectRatio="none" role="img" aria-label={text}>
        <line className="bound" x1="0" x2={WIDTH} y1={y(75)} y2={y(75)} />
        <line className="bound" x1="0" x2={WIDTH} y1={y(40)} y2={y(40)} />
        {paths.map((d, i) => (
          <path key={i} className="line" d={d} />
        ))}
        {near && <line className="cross" x1={x(near[0])} x2={x(near[0])} y1="0" y2={height} />}
      </svg>
      {axis && (
        <div className="bounds" aria-hidden>
          <span style={{ top: y(75) }}>75</span>
          <span style={{ top: y(40) }}>40</span>
        </div>
      )}
      {near && (
        <span className="value" aria-hidden style={{ left: `${Math.min(92, Math.max(8, ((near[0] - start) / range) * 100))}%` }}>
          <b>{formatScore(near[1])}</b> {formatClock(near[0] * 1000)}
        </span>
      )}
      {axis && (
        <div className="axis" aria-hidden>
          {[0, 0.5, 1].map((f) => (
            <span key={f}>{formatTick((start + f * range) * 1000, range)}</span>
          ))}
        </div>
      )}
    </div>
  );
}

function nearest(samples: readonly Sample[], t: number): Sample | undefined {
  let best: Sample | undefined;
  for (const s of samples) {
    if (s[1] !== null && (!best || Math.abs(s[0] - t) < Math.abs(best[0] - t))) best = s;
  }
  return best;
}
