import { useMemo, useState } from "react";
import { Link } from "wouter";
import { useSitesNamed } from "../api/map-queries";
import type { WorkloadDetail } from "../api/types";
import { Shape } from "../components/shape";
import { Empty } from "../components/states";
import { For } from "../components/time";
import { State } from "../components/workload-bits";
import { colourName } from "../lib/colour";
import { DASH, formatCount, plural } from "../lib/format";
import { sitePath } from "../lib/site";
import { arrangeSites, inState, reasonText, type SiteFilter, stateName, STATES } from "../lib/workloads";

const FIRST = 25;
const MORE = 100;

/** A workload's sites, the worst first. */
export function WorkloadSites({ workload: w, tenant, onPods }: { workload: WorkloadDetail; tenant: string; onPods: (site: string) => void }) {
  const [filter, setFilter] = useState<SiteFilter>({ q: "", state: "" });
  const [most, setMost] = useState(FIRST);
  const found = useMemo(() => arrangeSites(w.sites, filter), [w.sites, filter]);
  const known = useSitesNamed(tenant, useMemo(() => found.slice(0, most).map((s) => s.site), [found, most]));
  const states = [...STATES, "Offline", "Drifted"].filter((s) => inState(w.counts, s as SiteFilter["state"])) as SiteFilter["state"][];
  return (
    <section className="card" aria-label="Sites">
      <header>
        <h2>Sites</h2>
        <div className="row wrap cost-filters">
          <select className={filter.state ? "select set" : "select"} aria-label="State of sites" value={filter.state} onChange={(e) => setFilter({ ...filter, state: e.target.value as SiteFilter["state"] })}>
            <option value="">Any state</option>
            {states.map((s) => (
              <option key={s} value={s}>
                {s in stateName ? stateName[s as keyof typeof stateName] : s}
              </option>
            ))}
          </select>
          <input className="input" style={{ width: 180 }} type="search" aria-label="Search sites" placeholder="Site or reason…" value={filter.q} onChange={(e) => setFilter({ ...filter, q: e.target.value })} />
        </div>
      </header>
      {found.length === 0 ? (
        w.sites.length === 0 ? (
          <Empty title="On no site yet">
            <p>No site belongs to {w.virtualSites.join(" or ") || "its virtual sites"}. A site that joins gets it by itself.</p>
          </Empty>
        ) : (
          <Empty title="No site matches">
            <button type="button" className="button" onClick={() => setFilter({ q: "", state: "" })}>
              Clear filters
            </button>
          </Empty>
        )
      ) : (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of its sites">
          <table className="stacks">
            <thead>
              <tr>
                <th scope="col">Site</th>
                <th scope="col">State</th>
                <th scope="col">Why</th>
                <th scope="col">Since</th>
                <th scope="col" className="num">
                  Pods ready
                </th>
              </tr>
            </thead>
            <tbody>
              {found.slice(0, most).map((s) => {
                const site = known.get(s.site);
                return (
                  <tr key={s.site} data-workload-site={s.site}>
                    <th scope="row" className="vs-name">
                      <span className="row" style={{ gap: 6 }}>
                        {site && <Shape colour={site.colour} size={11} />}
                        <Link href={sitePath({ tenant, name: s.site })}>{s.site}</Link>
                        {site && <span className="visually-hidden">{colourName[site.colour]}</span>}
                      </span>
                    </th>
                    <td data-label="State">
                      <span className="row wrap" style={{ gap: 6 }}>
                        <State state={s.state} />
                        {!s.online && (
                          <span className="chip" title="Not connected: this is what it said last">
                            offline
                          </span>
                        )}
                        {s.drifted && (
                          <span className="chip warn" title="Somebody changed it on the site">
                            drifted
                          </span>
                        )}
                      </span>
                    </td>
                    <td data-label="Why" className="why-cell">
                      {s.reason ? (
                        <>
                          {reasonText(s.reason, s.message)}
                          {s.message && <div className="muted small">{s.message}</div>}
                        </>
                      ) : (
                        DASH
                      )}
                    </td>
                    <td data-label="Since" className="nowrap">
                      {s.since ? <For since={s.since} /> : DASH}
                    </td>
                    <td className="num" data-label="Pods ready">
                      {s.pods.desired === 0 ? (
                        DASH
                      ) : (
                        <button type="button" className="linkish" onClick={() => onPods(s.site)} aria-label={`Pods on ${s.site}`}>
                          {formatCount(s.pods.ready)}/{formatCount(s.pods.desired)}
                        </button>
                      )}
                    </td>
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
            {found.length < w.sites.length ? `${formatCount(found.length)} of ${plural(w.sites.length, "site")}` : plural(w.sites.length, "site")}
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
