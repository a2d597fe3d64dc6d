import { useMemo, useState } from "react";
import { useComparison } from "../api/rollout-queries";
import type { Dimension, RolloutDetail, RolloutSite } from "../api/types";
import { Lines, type Moment } from "../components/lines";
import { ProblemNote, Skeleton } from "../components/states";
import { DIMENSIONS, dimensionName } from "../lib/colour";
import { formatScore, plural } from "../lib/format";
import { summarize } from "../lib/history";
import { groupsOf } from "../lib/rollouts";
import { parseTime } from "../lib/time";

/** The scores of what changed and of what did not, over the time of the rollout. */
export function RolloutScores({ rollout: r, sites }: { rollout: RolloutDetail; sites: readonly RolloutSite[] }) {
  const [dimension, setDimension] = useState<Dimension | "">("");
  const groups = useMemo(() => groupsOf(r, sites), [r, sites]);
  const query = useComparison(r, groups, dimension);
  const c = query.data;
  const moments = useMemo<Moment[]>(() => {
    const out = r.waves.flatMap((w, i) => {
      const t = parseTime(w.startedAt);
      return t === undefined ? [] : [{ t: t / 1000, text: `wave ${i + 1}` }];
    });
    const back = r.decisions.find((d) => d.what === "RollingBack");
    const t = parseTime(back?.at);
    if (t !== undefined) out.push({ t: t / 1000, text: "put back" });
    return out.filter((m) => c && m.t >= c.start && m.t <= c.end);
  }, [r, c]);
  const name = dimension ? dimensionName[dimension] : "Score";
  const known = c && (summarize(c.changed) || summarize(c.unchanged));
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
            <Lines
              label={`${name}, mean`}
              lines={[
                { name: "changed", samples: c.changed },
                { name: "unchanged", samples: c.unchanged },
              ].filter((_, i) => (i === 0 ? groups.changed : groups.unchanged).length > 0 || i === 0)}
              moments={moments}
              start={c.start}
              end={c.end}
              height={170}
            />
          </>
        )}
      </div>
    </section>
  );
}
