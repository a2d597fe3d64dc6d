import { Link } from "wouter";
import { useSiteWorkloads } from "../api/vk8s-queries";
import { ProblemNote, Skeleton } from "../components/states";
import { For } from "../components/time";
import { State } from "../components/workload-bits";
import { DASH, formatCount } from "../lib/format";
import type { SiteRef } from "../lib/site";
import { compareWorst, kindOf, reasonText, virtualRef, workloadPath } from "../lib/workloads";

/** What runs on a site, of the virtual Kubernetes that the user may read. Nothing where there are none. */
export function SiteWorkloads({ site }: { site: SiteRef }) {
  const query = useSiteWorkloads(site);
  const rows = (query.data?.virtualKubernetes ?? []).flatMap((v) =>
    v.items.flatMap((w) => {
      const virtual = { tenant: site.tenant, namespace: v.namespace, name: v.name };
      const at = w.sites?.[0];
      return at ? [{ virtual, w, at }] : [];
    }),
  );
  const sorted = rows.sort((a, b) => compareWorst(a.at, b.at) || (a.w.name < b.w.name ? -1 : 1));
  return (
    <section className="card" aria-label="Workloads on this site">
      <header>
        <h2>What runs here</h2>
        {rows.length > 0 && <span className="muted small">the worst first</span>}
      </header>
      {query.error && (
        <div className="body">
          <ProblemNote slim error={query.error} doing="list what runs here" onRetry={() => void query.refetch()} />
        </div>
      )}
      {query.isPending && (
        <div className="body">
          <Skeleton height={22} count={3} />
        </div>
      )}
      {query.data && rows.length === 0 && (
        <p className="body muted">
          No workload of a virtual Kubernetes that you may read goes to this site. <Link href="/workloads">Workloads</Link>
        </p>
      )}
      {sorted.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of what runs here">
          <table className="stacks">
            <thead>
              <tr>
                <th scope="col">Workload</th>
                <th scope="col">State</th>
                <th scope="col">Since</th>
                <th scope="col" className="num">
                  Pods ready
                </th>
              </tr>
            </thead>
            <tbody>
              {sorted.map(({ virtual, w, at }) => (
                <tr key={`${virtualRef(virtual)}/${kindOf(w)}/${w.name}`} data-site-workload={`${w.kind}/${w.name}`}>
                  <th scope="row" className="vs-name">
                    <Link href={`${workloadPath({ virtual, kind: kindOf(w), name: w.name })}&site=${encodeURIComponent(site.name)}`}>{w.name}</Link>
                    <div className="muted small">
                      {w.kind} · {virtualRef(virtual)}
                    </div>
                  </th>
                  <td data-label="State">
                    <span className="row wrap" style={{ gap: 6 }}>
                      <State state={at.state} />
                      {at.drifted && <span className="chip warn">drifted</span>}
                    </span>
                    {at.reason && (
                      <div className="small" title={at.message}>
                        {reasonText(at.reason, at.message)}
                      </div>
                    )}
                  </td>
                  <td data-label="Since" className="nowrap">
                    {at.since ? <For since={at.since} /> : DASH}
                  </td>
                  <td className="num" data-label="Pods ready">
                    {at.pods.desired === 0 ? DASH : `${formatCount(at.pods.ready)}/${formatCount(at.pods.desired)}`}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
