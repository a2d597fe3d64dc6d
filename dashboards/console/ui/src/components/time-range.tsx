import { useEffect, useState } from "react";
import { serverNow } from "../api/client";
import { fromTyped, type NamedRange, rfc3339, spanOf, type TimeSpan, toTyped, TYPED_TIME } from "../lib/time-span";

const WANT = "want a time such as 2026-11-25 20:00";
const DAY = 86_400_000;

/** Chooses a time: one of some ranges up to now, or any from and to. */
export function TimeRange({ span, ranges, faults, onChange }: { span: TimeSpan; ranges: readonly NamedRange[]; faults?: { from: string; to: string }; onChange: (s: TimeSpan) => void }) {
  const [from, setFrom] = useState(() => toTyped(span.from));
  const [to, setTo] = useState(() => toTyped(span.to));
  const custom = !span.range;
  const [tried, setTried] = useState(false);
  const wrong = { from: tried && !fromTyped(from) ? WANT : (faults?.from ?? ""), to: tried && to.trim() !== "" && !fromTyped(to) ? WANT : (faults?.to ?? "") };
  const apply = () => {
    setTried(true);
    if (fromTyped(from) && (to.trim() === "" || fromTyped(to))) onChange({ range: "", from: fromTyped(from), to: fromTyped(to) });
  };
  useEffect(() => {
    setTried(false);
    setFrom(toTyped(span.from));
    setTo(toTyped(span.to));
  }, [span.from, span.to]);
  const begin = () => {
    const whole = (ms: number) => rfc3339(Math.floor(ms / 1000) * 1000);
    const now = serverNow();
    const s = spanOf(span, ranges, now) ?? (custom ? undefined : { start: now - DAY, end: now });
    if (s) onChange({ range: "", from: whole(s.start), to: whole(s.end) });
  };
  return (
    <>
      <div className="segmented" role="group" aria-label="Time range">
        {ranges.map((r) => (
          <button key={r.id} type="button" aria-pressed={span.range === r.id} onClick={() => onChange({ range: r.id, from: "", to: "" })}>
            {r.label}
          </button>
        ))}
        <button type="button" aria-pressed={custom} onClick={begin}>
          Custom
        </button>
      </div>
      {custom && (
        <div className="log-range">
          <label>
            <span className="label">From</span>
            <input className="input" {...TYPED_TIME} value={from} aria-invalid={wrong.from !== ""} aria-describedby="time-range-fault" onChange={(e) => setFrom(e.target.value)} />
          </label>
          <label>
            <span className="label">To</span>
            <input className="input" {...TYPED_TIME} value={to} aria-invalid={wrong.to !== ""} aria-describedby="time-range-fault" onChange={(e) => setTo(e.target.value)} />
          </label>
          <button type="button" className="button" onClick={apply}>
            Apply
          </button>
          <p id="time-range-fault" className="fault" role="alert">
            {[wrong.from && `from: ${wrong.from}`, wrong.to && `to: ${wrong.to}`].filter(Boolean).join("; ")}
          </p>
        </div>
      )}
    </>
  );
}
