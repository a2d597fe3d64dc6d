import { Link } from "wouter";
import { useRolloutsAtSite, useRolloutsOf } from "../api/rollout-queries";
import { Phase, Step, StepBar } from "../components/rollout-bits";
import { Ago } from "../components/time";
import { hasEnded, rolloutKey, rolloutPath, targetOf } from "../lib/rollouts";
import type { SiteRef } from "../lib/site";
import { zoned } from "../lib/time";
import type { WorkloadRef } from "../lib/workloads";

/** The rollout that moves a workload, or the one that moved it last. Nothing where there is none, or none that the user may read. */
export function RolloutOfWorkload({ of }: { of: WorkloadRef }) {
  const all = useRolloutsOf(of.virtual.tenant, of.virtual.namespace, `${of.kind}/${of.name}`).data ?? [];
  const r = all.find((x) => !hasEnded(x.phase)) ?? all[0];
  if (!r) return null;
  const ended = hasEnded(r.phase);
  return (
    <section className="note rollout-note" aria-label="Rollout" data-rollout-note={r.name}>
      <div className="row wrap">
        <span>{ended ? "The last rollout of it was" : "A rollout moves it:"}</span>
        <Link href={rolloutPath(r)}>{r.name}</Link>
        <Phase phase={r.phase} />
        {r.progress && <span className="muted">wave {r.progress}</span>}
        {ended && (
          <span className="muted">
            <Ago time={r.endedAt} none="" />
          </span>
        )}
      </div>
      {!ended && <StepBar counts={r.sites} />}
      {r.message && <p className="muted small">{zoned(r.message)}</p>}
    </section>
  );
}

/** Where a site stands in the rollouts that are under way. */
export function RolloutsOfSite({ site }: { site: SiteRef }) {
  const found = useRolloutsAtSite(site).data ?? [];
  if (found.length === 0) return null;
  return (
    <section className="card" aria-label="Rollouts of this site">
      <header>
        <h2>Rollouts under way</h2>
      </header>
      <ul className="conditions">
        {found.map(({ rollout: r, at }) => (
          <li key={rolloutKey(r)} data-rollout-at={r.name}>
            <div className="row wrap">
              <Link href={rolloutPath(r)}>{r.name}</Link>
              <Step step={at.step} />
              <span className="muted small">
                {targetOf(r)}
                {at.wave > 0 && `, wave ${at.wave} of ${r.waveCount}`}
              </span>
              <Phase phase={r.phase} />
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}
