import { Link } from "wouter";
import { useLoudness } from "../api/alert-queries";
import { ServiceNote } from "../components/service-note";
import { Empty, Skeleton } from "../components/states";
import { alertsHref } from "../lib/alert-filter";
import { DASH, formatCount, formatPercent, plural } from "../lib/format";

/** The page budget: which rules made people be notified, the loudest first. */
export function Loudest({ tenant, tenants }: { tenant: string; tenants: boolean }) {
  const list = useLoudness(tenant);
  const l = list.data;
  return (
    <>
      {list.error && <ServiceNote error={list.error} service="alerts" older={l !== undefined} onRetry={() => void list.refetch()} />}
      {list.isPending && <Skeleton height={28} count={6} />}
      {l && !l.counted && <p className="note slim">An Alertmanager of your own notifies; Muster does not count for it. Its metric alertmanager_notifications_total does.</p>}
      {l?.counted && l.rules.length === 0 && (
        <div className="card">
          <Empty title="Nobody was notified">
            <p>No rule notified anybody in the last {l.hours} hours.</p>
          </Empty>
        </div>
      )}
      {l && l.rules.length > 0 && (
        <section className="card" aria-label="Loudest rules">
          <header>
            <h2>{plural(l.total, "notification")} in the last {l.hours} hours</h2>
            <span className="muted small">one about several rules counts for each</span>
          </header>
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of the loudest rules">
            <table className="stacks">
              <thead>
                <tr>
                  <th scope="col">Rule</th>
                  <th scope="col" className="num">Notifications</th>
                  <th scope="col" className="num">Share</th>
                  <th scope="col" className="num">Failed attempts</th>
                  <th scope="col">Receivers</th>
                </tr>
              </thead>
              <tbody>
                {l.rules.map((r) => (
                  <tr key={`${r.tenant}/${r.rule}`} data-rule={r.rule}>
                    <th scope="row" className="vs-name">
                      <Link href={alertsHref({ tenant: r.tenant, q: r.rule })}>{r.rule}</Link>
                      {tenants && <span className="muted small"> {r.tenant}</span>}
                    </th>
                    <td className="num" data-label="Notifications">
                      <b>{formatCount(r.notifications)}</b>
                    </td>
                    <td className="num" data-label="Share">{l.total > 0 ? formatPercent((100 * r.notifications) / l.total) : DASH}</td>
                    <td className="num" data-label="Failed attempts">{r.failed > 0 ? <span className="error">{formatCount(r.failed)}</span> : 0}</td>
                    <td className="small" data-label="Receivers">{r.receivers.join(", ")}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}
