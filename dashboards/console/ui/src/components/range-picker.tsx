import { type Range, RANGES } from "../lib/history";

/** One of the ranges of a chart. */
export function RangePicker({ range, onChange, ranges = RANGES }: { range: Range; onChange: (r: Range) => void; ranges?: readonly Range[] }) {
  return (
    <div className="segmented" role="group" aria-label="Time range">
      {ranges.map((r) => (
        <button key={r.id} type="button" aria-pressed={r.id === range.id} onClick={() => onChange(r)}>
          {r.label}
        </button>
      ))}
    </div>
  );
}
