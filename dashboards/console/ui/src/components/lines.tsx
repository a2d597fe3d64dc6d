import { type PointerEvent, useState } from "react";
import { formatScore } from "../lib/format";
import { type Sample, strokes, summarize } from "../lib/history";
import { formatClock, formatTick } from "../lib/time";

export interface Line {
  name: string;
  /** The first is drawn through, the second dashed. */
  samples: readonly Sample[];
}

export interface Moment {
  /** Seconds since 1970. */
  t: number;
  text: string;
}

const WIDTH = 400;

/** Two lines of scores in one picture, from the lowest that there was up to 100, with moments marked. */
export function Lines({ lines, moments, start, end, height, label }: { lines: readonly Line[]; moments: readonly Moment[]; start: number; end: number; height: number; label: string }) {
  const [at, setAt] = useState<number | null>(null);
  const range = Math.max(1, end - start);
  const sums = lines.map((l) => summarize(l.samples));
  const floor = Math.max(0, Math.floor((Math.min(70, ...sums.map((s) => s?.min ?? 100)) - 5) / 10) * 10);
  const x = (t: number) => ((t - start) / range) * WIDTH;
  const y = (v: number) => height - ((Math.min(100, v) - floor) / (100 - floor)) * height;
  const text = `${label}: ${lines.map((l, i) => `${l.name} ${sums[i] ? `first ${formatScore(sums[i].first)}, now ${formatScore(sums[i].last)}, lowest ${formatScore(sums[i].min)} at ${formatClock(sums[i].minAt * 1000)}` : "no samples"}`).join("; ")}`;
  const point = (e: PointerEvent<HTMLElement>) => {
    const box = e.currentTarget.getBoundingClientRect();
    setAt(start + Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)) * range);
  };
  const ticks = [floor, 40, 75, 100].filter((v, i, all) => v >= floor && all.indexOf(v) === i && (v === floor || v - floor > 6));
  return (
    <div className="chart lines" onPointerMove={point} onPointerLeave={() => setAt(null)}>
      <svg viewBox={`0 0 ${WIDTH} ${height}`} height={height} preserveAspectRatio="none" role="img" aria-label={text}>
        {ticks.map((v) => (
          <line key={v} className="bound" x1="0" x2={WIDTH} y1={y(v)} y2={y(v)} />
        ))}
        {moments.map((m) => (
          <line key={`${m.t}${m.text}`} className="moment" x1={x(m.t)} x2={x(m.t)} y1="0" y2={height} />
        ))}
        {lines.map((l, i) =>
          strokes(l.samples).map((run, k) => <path key={`${l.name}/${k}`} className={i === 0 ? "line" : "line other"} d={run.map((p, n) => `${n === 0 ? "M" : "L"}${x(p.t).toFixed(1)} ${y(p.v).toFixed(1)}`).join("") + (run.length === 1 ? "h0.01" : "")} />),
        )}
        {at !== null && <line className="cross" x1={x(at)} x2={x(at)} y1="0" y2={height} />}
      </svg>
      <div className="bounds" aria-hidden>
        {ticks.map((v) => (
          <span key={v} style={{ top: y(v) }}>
            {v}
          </span>
        ))}
      </div>
      <div className="moments" aria-hidden>
        {moments.map((m) => (
          <span key={`${m.t}${m.text}`} className={m.t - start > range * 0.7 ? "late" : undefined} style={{ left: `${((m.t - start) / range) * 100}%` }}>
            {m.text}
          </span>
        ))}
      </div>
      {at !== null && (
        <span className="value" aria-hidden style={{ left: `${Math.min(85, Math.max(15, ((at - start) / range) * 100))}%` }}>
          {lines.map((l) => (
            <span key={l.name}>
              {l.name} <b>{formatScore(near(l.samples, at))}</b>{" "}
            </span>
          ))}
          {formatClock(at * 1000)}
        </span>
      )}
      <div className="axis" aria-hidden>
        {[0, 0.5, 1].map((f) => (
          <span key={f}>{formatTick((start + f * range) * 1000, range)}</span>
        ))}
      </div>
    </div>
  );
}

function near(samples: readonly Sample[], t: number): number | null {
  let best: Sample | undefined;
  for (const s of samples) if (!best || Math.abs(s[0] - t) < Math.abs(best[0] - t)) best = s;
  return best?.[1] ?? null;
}
