import { useMemo, useState } from "react";
import { Link } from "wouter";
import { useSitesNamed } from "../api/map-queries";
import type { RolloutDetail, RolloutSite, RolloutStep } from "../api/types";
import { Step } from "../components/rollout-bits";
import { Shape } from "../components/shape";
import { Empty, Skeleton } from "../components/states";
import { colourName } from "../lib/colour";
import { DASH, formatCount, formatScore, plural } from "../lib/format";
import { hasEnded, stepName, STEPS } from "../lib/rollouts";
import { sitePath } from "../lib/site";
import { shortImage } from "../lib/workloads";

const FIRST = 25;
const MORE = 100;

export interface StepFilter {
  q: string;
  wave: string;
  step: string;
}

interface Props {
  rollout: RolloutDetail;
  sites: readonly RolloutSite[] | undefined;
  filter: StepFilter;
  onFilter: (f: StepFilter) => void;
  onRetry: (site: string) => void;
}

/** Which site stands where. */
export function RolloutSites({ rollout: r, sites, filter, onFilter, onRetry }: Props) {
  const [most, setMost] = useState(FIRST);
  const found = useMemo(() => {
    const q = filter.q.trim().toLowerCase();
    return (sites ?? []).filter((s) => (!filter.wave || s.wave === Number(filter.wave)) && (!filter.step || s.step === filter.step) && s.site.includes(q));
  }, [sites, filter]);
  const known = useSitesNamed(r.tenant, useMemo(() => found.slice(0, most).map((s) => s.site), [found, most]));
  const steps = STEPS.filter((s) => s === filter.step || sites?.some((x) => x.step === s));
  const mayRetry = r.rights.control && !hasEnded(r.phase);
  return (
    <section className="card" aria-label="Sites">
      <header>
        <h2>Sites</h2>
        <div className="row wrap cost-filters">
          <select className={filter.wave ? "select set" : "select"} aria-label="Wave" value={filter.wave} onChange={(e) => onFilter({ ...filter, wave: e.target.value })}>
            <option value="">Any wave</option>
            {r.waves.map((w) => (
              <option key={w.number} value={w.number}>
                {w.number}. {w.name}
              </option>
            ))}
          </select>
          <select className={filter.step ? "select set" : "select"} aria-label="Step" value={filter.step} onChange={(e) => onFilter({ ...filter, step: e.target.value })}>
            <option value="">Any step</option>
            {steps.map((s: RolloutStep) => (
              <option key={s} value={s}>
                {stepName[s]}
              </option>
            ))}
          </select>
          <input className="input" style={{ width: 160 }} type="search" aria-label="Search sites" placeholder="Site…" value={filter.q} onChange={(e) => onFilter({ ...filter, q: e.target.value })} />
        </div>
      </header>
      {sites === undefined ? (
        <div className="body">
          <Skeleton height={24} count={4} />
        </div>
      ) : found.length === 0 ? (
        sites.length === 0 ? (
          <Empty title="No site yet">
            <p>Sites are put into waves once the rollout begins.</p>
          </Empty>
        ) : (
          <Empty title="No site matches">
            <button type="button" className="button" onClick={() => onFilter({ q: "", wave: "", step: "" })}>
              Clear filters
            </button>
          </Empty>
        )
      ) : (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of its sites">
          <table className="stacks rollout-sites">
            <thead>
              <tr>
                <th scope="col">Site</th>
                <th scope="col">Step</th>
                <th scope="col">Wave</th>
                <th scope="col">Shall have</th>
                <th scope="col" className="num">
                  Score
                </th>
                {mayRetry && <th scope="col"><span className="visually-hidden">Tools</span></th>}
              </tr>
            </thead>
            <tbody>
              {found.slice(0, most).map((s) => {
                const site = known.get(s.site);
                const content = r.contents[s.has];
                return (
                  <tr key={s.site} data-rollout-site={s.site}>
                    <th scope="row" className="vs-name">
                      <Link href={sitePath({ tenant: r.tenant, name: s.site })}>{s.site}</Link>
                    </th>
                    <td data-label="Step">
                      <Step step={s.step} />
                    </td>
                    <td data-label="Wave">{s.wave > 0 ? s.wave : DASH}</td>
                    <td data-label="Shall have" className="images">
                      {content?.text ? content.text.split(", ").map(shortImage).join(", ") : content?.new ? "the change" : "what it had"}
                      {content?.new && <span className="chip new">new</span>}
                    </td>
                    <td className="num" data-label="Score">
                      {site ? (
                        <span className="row nowrap" style={{ gap: 5, justifyContent: "flex-end" }}>
                          <Shape colour={site.colour} size={11} />
                          {formatScore(site.score)}
                          <span className="visually-hidden">{colourName[site.colour]}</span>
                        </span>
                      ) : (
                        DASH
                      )}
                    </td>
                    {mayRetry && (
                      <td className="pod-tools">
                        {s.step === "failed" && (
                          <button type="button" className="button" aria-label={`Retry ${s.site}`} onClick={() => onRetry(s.site)}>
                            Retry
                          </button>
                        )}
                      </td>
                    )}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {found.length > 0 && (
        <div className="body row wrap spread">
          <p className="muted small" role="status">
            {sites && found.length < sites.length ? `${formatCount(found.length)} of ${plural(sites.length, "site")}` : plural(found.length, "site")}
          </p>
          {found.length > most && (
            <button type="button" className="button" onClick={() => setMost(most + MORE)}>
              Show {formatCount(Math.min(MORE, found.length - most))} more
            </button>
          )}
        </div>
      )}
    </section>
  );
}
