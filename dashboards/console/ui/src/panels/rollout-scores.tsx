import { useMemo, useState } from "react";
import { useComparison, useComparisonBetween } from "../api/rollout-queries";
import type { Dimension, RolloutDetail, RolloutSite } from "../api/types";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { ProblemNote, Skeleton } from "../components/states";
import { type BetweenAnswer, betweenOf } from "../lib/between";
import { DIMENSIONS, dimensionName } from "../lib/colour";
import { type Line, type Mark, SCORE_BANDS } from "../lib/chart";
import { formatScore, plural } from "../lib/format";
import { summarize } from "../lib/history";
import { cutSteps, groupsOf } from "../lib/rollouts";
import { parseTime } from "../lib/time";

/** The scores of what changed and of what did not, over the time of the rollout. */
export function RolloutScores({ rollout: r, sites }: { rollout: RolloutDetail; sites: readonly RolloutSite[] }) {
  const [dimension, setDimension] = useState<Dimension | "">("");
  const groups = useMemo(() => groupsOf(r, sites), [r, sites]);
  const query = useComparison(r, groups, dimension);
  const c = query.data;
  const between = useComparisonBetween(r, groups, dimension, query);
  const moments = useMemo(() => {
    const out = r.waves.flatMap((w): Mark[] => {
      const t = parseTime(w.startedAt);
      return t === undefined ? [] : [{ t: t / 1000, tone: "info", text: `wave ${w.number}`, short: `wave ${w.number}` }];
    });
    const back = r.decisions.find((d) => d.what === "RollingBack");
    const t = parseTime(back?.at);
    if (t !== undefined) out.push({ t: t / 1000, tone: "bad", text: "put back", short: "put back" });
    return out.filter((m) => c && m.t >= c.start && m.t <= c.end);
  }, [r, c]);
  const resting = groups.unchanged.length > 0;
  const lines = useMemo<Line[]>(() => {
    if (!c) return [];
    const steps = (a: BetweenAnswer | undefined) => (a && betweenOf(a, () => "").get("")) ?? [];
    const all = [{ name: "changed", samples: c.changed, between: steps(between.changed) }, { name: "unchanged", samples: c.unchanged, between: cutSteps(steps(between.unchanged), groups.until), dashed: true }];
    return all.filter((_, i) => i === 0 || resting);
  }, [c, between.changed, between.unchanged, groups.until, resting]);
  const name = dimension ? dimensionName[dimension] : "Score";
  const known = c && lines.some((l) => summarize(l.samples, l.between));
  return (
    <section className="card" aria-label="Changed against unchanged">
      <header>
        <h2>Changed against unchanged</h2>
        <div className="segmented dimensions" role="group" aria-label="What is compared">
          {(["", ...DIMENSIONS] as const).map((d) => (
            <button key={d} type="button" aria-pressed={d === dimension} onClick={() => setDimension(d)}>
              {d ? dimensionName[d] : "Score"}
            </button>
          ))}
        </div>
      </header>
      <div className="body stack">
        {query.error && <ProblemNote slim error={query.error} doing={c ? "refresh the comparison; it is older" : "compare the scores"} onRetry={() => void query.refetch()} />}
        {query.isPending && <Skeleton height={170} />}
        {c && !known && !query.error && <p className="muted">There are no samples of these scores in this time.</p>}
        {c && known && (
          <>
            <ul className="keys small">
              {groups.changed.length > 0 && (
                <li>
                  <i aria-hidden className="stroke" /> changed: {plural(groups.changed.length, "site")}, mean <b>{formatScore(summarize(c.changed)?.last)}</b>
                </li>
              )}
              {groups.unchanged.length > 0 && (
                <li>
                  <i aria-hidden className="stroke other" /> {groups.unchangedName}: {plural(groups.unchanged.length, "site")}, mean <b>{formatScore(summarize(c.unchanged)?.last)}</b>
                </li>
              )}
            </ul>
            <Chart label={`${name}, mean`} lines={lines} marks={moments} bands={SCORE_BANDS} start={c.start} end={c.end} height={190} axis />
            <p className="muted small">
              <BetweenNote range={between.range} known={between.changed !== undefined || between.unchanged !== undefined} error={between.error} />
            </p>
          </>
        )}
      </div>
    </section>
  );
}
