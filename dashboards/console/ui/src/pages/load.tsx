import { useQuery } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { Link, useLocation } from "wouter";
import { Problem } from "../api/client";
import { useSiteFields } from "../api/inventory-queries";
import { useSiteDistributions, useSiteRows } from "../api/map-queries";
import { sessionQuery } from "../api/queries";
import { useAlertRules } from "../api/rule-queries";
import type { AlertRules, SiteDistribution, SiteDistributions } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { QueryBox } from "../components/query-box";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { MakeRuleDialog } from "../dialogs/make-rule";
import { alertsHref } from "../lib/alert-filter";
import { formatCount, plural } from "../lib/format";
import { both, columnTitle, formatView, type View } from "../lib/inventory";
import { sentenceOf } from "../lib/load";
import { siteKey, sitePath } from "../lib/site";
import { useView } from "../lib/use-view";

const COLUMNS = "cpuUsed,memoryUsed,diskUsed";
const RANKED = 10;

/** How loaded the sites of a query are: how the figures spread, and who has the most. */
export function LoadPage() {
  useTitle("Load");
  const { view, change } = useView("/load");
  const [, navigate] = useLocation();
  const [q, setQ] = useTyped(view.q, useCallback((text: string) => change({ q: text }), [change]));
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const known = useSiteFields(view.tenant).data;
  const found = useSiteDistributions({ q: view.q, tenant: view.tenant, of: COLUMNS });
  const fault = found.error instanceof Problem && found.error.status === 400 ? found.error.fieldFault("q") : "";
  const d = found.data;
  return (
    <div className="page stack">
      <div className="page-head wide">
        <div>
          <h1>Load</h1>
          <p className="muted">How much of their CPU, memory and disk sites use: of memory and disk what the fullest node has.</p>
        </div>
      </div>
      <form role="search" aria-label="Query" className="load-query" onSubmit={(e) => e.preventDefault()}>
        <QueryBox value={q} onChange={setQ} known={known} fault={fault} />
        <TenantSelect value={view.tenant} tenants={tenants} width={150} onChange={(tenant) => change({ tenant })} />
      </form>
      {found.error && !fault && <ProblemNote error={found.error} doing={d ? "refresh the figures; these are older" : "load the figures"} onRetry={() => void found.refetch()} />}
      {found.isPending && !found.error && <Skeleton height={220} count={3} />}
      {d && <Found d={d} view={view} onAll={() => navigate("/load", { replace: true })} />}
    </div>
  );
}

function Found({ d, view, onAll }: { d: SiteDistributions; view: View; onAll: () => void }) {
  if (d.total === 0) {
    return d.readable === 0 ? (
      <Empty title="No sites yet">
        <p>Make a registration token; the command that it prints joins a machine.</p>
        <Command text="muster token create" />
      </Empty>
    ) : (
      <Empty title="No site matches">
        <p>{plural(d.readable, "site does", "sites do")} not fit the query.</p>
        <button type="button" className="button" onClick={onAll}>
          Show all sites
        </button>
      </Empty>
    );
  }
  return (
    <>
      <p className="muted small" role="status" data-ready>
        {d.total === d.readable ? plural(d.total, "site") : `${formatCount(d.total)} of ${plural(d.readable, "site")}`}, as of <Ago time={d.asOf} />
      </p>
      {d.notes.map((n) => (
        <p key={n} className="note slim small" role="status">
          {n}
        </p>
      ))}
      {d.distributions.map((x) => (
        <Distribution key={x.column} d={x} view={view} />
      ))}
    </>
  );
}

function Distribution({ d, view }: { d: SiteDistribution; view: View }) {
  const title = columnTitle(d.column);
  const ranked = useSiteRows({ q: both(view.q, `${d.column}!=unknown`), tenant: view.tenant, sort: `-${d.column}`, columns: `${d.column},region`, limit: RANKED });
  const inventory = (term: string) => `/sites?${formatView({ ...view, q: both(view.q, term), sort: `-${d.column}`, columns: ["name", d.column, "colour", "score", "region", "reason"] })}`;
  const most = Math.max(1, ...d.bins.map((b) => b.sites));
  return (
    <section className="card" aria-label={title} data-load={d.column}>
      <header>
        <h2>{title}</h2>
        {d.unknown > 0 && <Link href={inventory(`${d.column}=unknown`)}>not known of {formatCount(d.unknown)}</Link>}
      </header>
      {d.known === 0 ? (
        <Empty title="Not known of any site">
          <p>The signal behind it is not measured: node_exporter must run on the sites, and the health policy must have it.</p>
        </Empty>
      ) : (
        <div className="load-split">
          <div>
            <p className="load-sentence">{sentenceOf(d)}</p>
            <ol className="load-bars" aria-label={`${title}: sites by percent; a bar opens its sites`}>
              {d.bins.map((b) => (
                <li key={b.from}>
                  <Link href={inventory(b.query)} aria-label={`${plural(b.sites, "site")} from ${b.from} to ${b.to}%`} title={`${plural(b.sites, "site")}: ${b.from}–${b.to}%`} data-bin={b.from}>
                    <span style={{ height: b.sites === 0 ? 0 : `max(2px, ${(100 * b.sites) / most}%)` }} />
                  </Link>
                  {b.from % 25 === 0 && <small aria-hidden>{b.from}%</small>}
                </li>
              ))}
            </ol>
            <p className="muted small">
              Least {d.least}%, 10th percentile {d.p10}%, median {d.median}%, mean {d.mean}%, 90th percentile {d.p90}%, most {d.most}%
            </p>
          </div>
          <div>
            <table className="load-ranked">
              <caption className="visually-hidden">Sites with the most</caption>
              <tbody>
                {ranked.data?.sites.map((s) => (
                  <tr key={siteKey(s)}>
                    <th scope="row">
                      <Link href={sitePath(s)}>{s.name}</Link>
                    </th>
                    <td className="muted small">{s.region}</td>
                    <td className="num">{String(s[d.column])}%</td>
                  </tr>
                ))}
              </tbody>
            </table>
            <p>
              <Link href={inventory(`${d.column}!=unknown`)}>All, ranked</Link>
            </p>
          </div>
          <Rule d={d} title={title} view={view} />
        </div>
      )}
    </section>
  );
}

/** The way to the alert rule, and what became of the last one that was made here. */
function Rule({ d, title, view }: { d: SiteDistribution; title: string; view: View }) {
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const [asking, setAsking] = useState(false);
  const [made, setMade] = useState<{ rules: AlertRules; alert: string }>();
  return (
    <div className="load-rule">
      <button type="button" className="button" onClick={() => setAsking(true)}>
        Make an alert rule…
      </button>
      <div role="status">{made && <Made key={made.rules.name} {...made} />}</div>
      {asking && (
        <MakeRuleDialog d={d} title={title} q={view.q} tenants={tenants} tenant={view.tenant} onClose={() => setAsking(false)}
          onDone={(rules, alert) => {
            setMade({ rules, alert });
            setAsking(false);
          }}
        />
      )}
    </div>
  );
}

const APPLIED = { True: "every regional evaluates it", False: "", Unknown: "no regional has it yet" } as const;

/** Where a rule is that was made, and how far it has come. */
function Made({ rules, alert }: { rules: AlertRules; alert: string }) {
  const { data } = useAlertRules(rules);
  return (
    <div className="note slim" data-made={rules.name}>
      <span>
        AlertRules <code>{rules.name}</code> is in <code>{rules.tenant}-system</code>: {APPLIED[data.applied] || data.message || APPLIED.Unknown}.
      </span>
      <Link href={alertsHref({ tenant: rules.tenant, q: alert })}>Its alerts</Link>
      <Link href={`/timeline?${new URLSearchParams({ tenant: rules.tenant, kind: "policy" }).toString()}`}>In the timeline</Link>
    </div>
  );
}
