import type { Counts } from "../api/types";
import { COLOURS, colourName } from "../lib/colour";
import { formatCount } from "../lib/format";
import { Shape } from "./shape";

export const countsText = (c: Counts): string =>
  COLOURS.filter((k) => c[k] > 0)
    .map((k) => `${formatCount(c[k])} ${colourName[k].toLowerCase()}`)
    .join(", ") || "no sites";

/** How many sites have each colour, as one bar. */
export function StackedBar({ counts, height = 10 }: { counts: Counts; height?: number }) {
  const total = COLOURS.reduce((n, c) => n + counts[c], 0);
  return (
    <div className="stacked" role="img" aria-label={countsText(counts)} title={countsText(counts)} style={{ height }}>
      {total > 0 && COLOURS.map((c) => counts[c] > 0 && <span key={c} className={c} style={{ flexGrow: counts[c] }} />)}
    </div>
  );
}

/** The counts in figures, each with its shape; zeros are left faint. */
export function CountsRow({ counts }: { counts: Counts }) {
  return (
    <span className="counts" aria-hidden>
      {COLOURS.map((c) => (
        <span key={c} className={counts[c] === 0 ? "zero" : undefined}>
          <Shape colour={c} size={10} />
          {formatCount(counts[c])}
        </span>
      ))}
    </span>
  );
}
