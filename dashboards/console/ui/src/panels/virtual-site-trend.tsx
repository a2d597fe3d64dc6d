import { useMemo, useState } from "react";
import { useBetween, useRange } from "../api/metric-queries";
import type { VirtualSite } from "../api/types";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { RangePicker } from "../components/range-picker";
import { ProblemNote, Skeleton } from "../components/states";
import { betweenOf, withBetween } from "../lib/between";
import { type Line, lineVariable } from "../lib/chart";
import { formatScore } from "../lib/format";
import { linesOf, promString, rangeOf } from "../lib/history";
import { virtualSiteRef } from "../lib/site";

const STATS = [["mean", "Mean"], ["p10", "10th percentile"], ["worst", "Worst"]] as const;
const SCALE = [0, 100] as const;

/** How the scores of a virtual site's members went: mean, 10th percentile and worst. */
export function VirtualSiteTrend({ of: v }: { of: VirtualSite }) {
  const [range, setRange] = useState(rangeOf("24h"));
  const score = `muster_virtual_site_health_score{virtual_site=${promString(virtualSiteRef(v))}}`;
  const query = useRange(v.tenant, score, range);
  const between = useBetween(v.tenant, score, range, query);
  const { data, error, refetch } = query;
  const lines = useMemo<Line[]>(() => {
    if (!data) return [];
    const by = linesOf(data.matrix, "stat", data.start, data.end, range.step);
    const lines = STATS.flatMap(([stat, name]) => (by.has(stat) ? [{ name, key: stat, samples: by.get(stat)! }] : []));
    const known = new Set(lines.map((l): string => l.key));
    return withBetween(lines, between.data && betweenOf(between.data, (m) => (known.has(m.stat ?? "") ? m.stat : undefined)));
  }, [data, between.data, range.step]);
  return (
    <section className="card" aria-label="Trend">
      <header>
        <h2>Score</h2>
        <RangePicker range={range} onChange={setRange} />
      </header>
      <div className="body">
        {error && <ProblemNote slim error={error} doing={data ? "refresh the trend; it is older" : "read the trend"} onRetry={() => void refetch()} />}
        {!error && !data && <Skeleton height={180} />}
        {data && lines.length === 0 && <p className="muted">There are no samples in this time. They begin with the first evaluation after the virtual site was made.</p>}
        {data && lines.length > 0 && (
          <>
            <ul className="keys row wrap small">
              {lines.map((l, i) => (
                <li key={l.name}>
                  <i aria-hidden className="stroke" style={{ borderTopColor: `var(${lineVariable(i)})` }} /> {l.name}
                </li>
              ))}
            </ul>
            <Chart axis lines={lines} start={data.start} end={data.end} height={180} scale={SCALE} format={formatScore} label={`Score of ${virtualSiteRef(v)} over the last ${range.label}: mean, 10th percentile and worst`} />
            <p className="muted small">
              <BetweenNote range={range} known={between.data !== undefined} error={between.error} />
            </p>
          </>
        )}
      </div>
    </section>
  );
}
