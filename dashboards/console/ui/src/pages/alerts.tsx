import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useAlertCounts, useAlerts } from "../api/alert-queries";
import { sessionQuery } from "../api/queries";
import type { Alert, SeverityCounts } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { RightButton } from "../components/right-button";
import { ServiceNote } from "../components/service-note";
import { Severity, SeverityMark } from "../components/severity";
import { useTitle } from "../components/shell";
import { Empty, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { type AlertFilter, alertPath, alertsHref, formatAlertFilter, groupsHref, parseAlertFilter, silencesHref, summaryOf, suppressedText } from "../lib/alert-filter";
import { DASH, formatCount, plural } from "../lib/format";
import { ALERT_SEVERITIES } from "../lib/severity";
import { sitePath } from "../lib/site";
import { SiteInput, VirtualSiteSelect } from "../panels/logs-filters";
import { SilenceDialog } from "../dialogs/silence";
import { AlertGroups } from "../panels/alert-groups";
import { Loudest } from "../panels/loudest";
import { SilencesTab } from "../panels/silences";

const TABS = ["alerts", "groups", "silences", "loudest"] as const;
const TITLE = { alerts: "Alerts", groups: "Alerts by route", silences: "Silences", loudest: "Loudest rules" } as const;
const ABOUT = {
  alerts: "What fires now, the most severe first, then the newest. Refreshed every 10 seconds.",
  groups: "What fires now, as it is sent to people.",
  silences: "Alerts that a silence fits are shown on, but tell nobody while it lasts.",
  loudest: (
    <>
      Which rules had somebody notified, and how often. A rule that nobody acts on wants a longer <code>for</code> or <code>keep_firing_for</code>, or to go.
    </>
  ),
} as const;

const tabHref = (tab: string, tenant: string) => `/alerts?${new URLSearchParams({ tab, ...(tenant ? { tenant } : {}) }).toString()}`;

export function AlertsPage() {
  const address = useSearch();
  const tab = TABS.find((t) => t === new URLSearchParams(address).get("tab")) ?? "alerts";
  const filter = useMemo(() => parseAlertFilter(address), [address]);
  const session = useQuery(sessionQuery);
  const tenants = session.data?.tenants ?? [];
  const [silencing, setSilencing] = useState<{ tenant: string; labels: Record<string, string> } | null>(null);
  const [done, setDone] = useState("");
  useTitle(TITLE[tab]);
  const item = (id: string, href: string, text: string) => (
    <li>
      <Link href={href} {...(tab === id ? { "aria-current": "page" as const } : {})}>
        {text}
      </Link>
    </li>
  );
  return (
    <div className="page stack">
      <div className="page-head">
        <div>
          <h1>{TITLE[tab]}</h1>
          <p className="muted">
            {ABOUT[tab]}
          </p>
        </div>
        <RightButton need="create silences.muster.dev" tenants={[filter.tenant]} onClick={() => setSilencing({ tenant: filter.tenant, labels: filter.site ? { site: filter.site } : {} })}>
          New silence…
        </RightButton>
      </div>
      <nav className="tabs" aria-label="Alerts and silences">
        <ul>
          {item("alerts", alertsHref(filter), "Alerts")}
          {item("groups", groupsHref(filter), "By route")}
          {item("silences", silencesHref(filter.tenant), "Silences")}
          {item("loudest", tabHref("loudest", filter.tenant), "Loudest rules")}
        </ul>
      </nav>
      <div role="status">{done && <div className="note slim">{done}</div>}</div>
      {tab === "alerts" && <AlertsTab filter={filter} tenants={tenants} />}
      {tab === "groups" && formatAlertFilter({ ...filter, tenant: "" }) !== "" && (
        <p className="note slim">
          Of the alerts that the filters of <Link href={alertsHref(filter)}>Alerts</Link> leave. <Link href={tabHref("groups", filter.tenant)}>Groups of all</Link>
        </p>
      )}
      {tab === "groups" && <AlertGroups filter={filter} tenants={tenants.length > 1} onSilence={(tenant, labels) => setSilencing({ tenant, labels })} onDone={setDone} />}
      {tab === "silences" && <SilencesTab address={address} tenants={tenants} />}
      {tab === "loudest" && <Loudest tenant={filter.tenant} tenants={tenants.length > 1} />}
      {silencing && (
        <SilenceDialog
          tenants={tenants}
          tenant={silencing.tenant}
          labels={silencing.labels}
          onClose={() => setSilencing(null)}
          onDone={(text) => {
            setDone(text);
            setSilencing(null);
          }}
        />
      )}
    </div>
  );
}

function AlertsTab({ filter, tenants }: { filter: AlertFilter; tenants: readonly string[] }) {
  const [, navigate] = useLocation();
  const change = useCallback((f: Partial<AlertFilter>) => navigate(alertsHref({ ...filter, ...f }), { replace: true }), [filter, navigate]);
  const list = useAlerts(filter);
  const apart = useAlertCounts(filter, filter.severity !== "");
  const first = list.data?.pages[0];
  const alerts = useMemo(() => list.data?.pages.flatMap((p) => p.alerts) ?? [], [list.data]);
  const counts = filter.severity === "" ? first?.counts : apart.data;
  const filtered = formatAlertFilter(filter) !== "";
  return (
    <>
      <Filters filter={filter} tenants={tenants} counts={counts} onChange={change} />
      {list.error && <ServiceNote error={list.error} service="alerts" older={first !== undefined} onRetry={() => void list.refetch()} />}
      {list.isPending && (
        <div className="card">
          <div className="body">
            <Skeleton height={32} count={6} />
          </div>
        </div>
      )}
      {first && alerts.length === 0 && (
        <div className="card">
          <Empty title={filtered ? "No alert matches" : "Nothing fires"}>
            <p>{filtered ? "No alert that fires now fits the search and filters." : "No alert fires in the tenants that you may read."}</p>
            {filtered && (
              <button type="button" className="button" onClick={() => navigate("/alerts", { replace: true })}>
                Clear filters
              </button>
            )}
          </Empty>
        </div>
      )}
      {alerts.length > 0 && (
        <>
          <AlertTable alerts={alerts} tenants={tenants.length > 1} />
          <div className="row wrap spread">
            <p className="muted small" role="status">
              {first && first.total > alerts.length ? `${formatCount(alerts.length)} of ${plural(first.total, "alert")}` : plural(alerts.length, "alert")}
              {first && (
                <>
                  , as of <Ago time={first.asOf} />
                </>
              )}
            </p>
            {list.hasNextPage && (
              <button type="button" className="button" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
                {list.isFetchingNextPage ? "Loading…" : "Load more"}
              </button>
            )}
          </div>
        </>
      )}
    </>
  );
}

function Filters({ filter, tenants, counts, onChange }: { filter: AlertFilter; tenants: readonly string[]; counts: SeverityCounts | undefined; onChange: (f: Partial<AlertFilter>) => void }) {
  const [q, setQ] = useTyped(
    filter.q,
    useCallback((q: string) => onChange({ q }), [onChange]),
  );
  const [site, setSite] = useState(filter.site);
  useEffect(() => setSite(filter.site), [filter.site]);
  const commit = () => {
    if (site.trim() !== filter.site) onChange({ site: site.trim() });
  };
  return (
    <form
      className="alert-filters"
      role="search"
      aria-label="Search and filter alerts"
      onSubmit={(e) => {
        e.preventDefault();
        commit();
      }}
    >
      <div className="alert-counts" role="group" aria-label="Severities; press to filter">
        {ALERT_SEVERITIES.map((s) => (
          <button key={s} type="button" aria-pressed={filter.severity === s} data-severity={s} onClick={() => onChange({ severity: filter.severity === s ? "" : s })}>
            <SeverityMark severity={s} size={14} />
            <span className="name">{s}</span>
            <b>{counts ? formatCount(counts[s]) : DASH}</b>
          </button>
        ))}
      </div>
      <input className="input" type="search" aria-label="Search alerts" placeholder="Labels, annotations…" maxLength={200} value={q} onChange={(e) => setQ(e.target.value)} />
      <TenantSelect value={filter.tenant} tenants={tenants} onChange={(tenant) => onChange({ tenant })} />
      <VirtualSiteSelect tenant={filter.tenant} value={filter.virtualSite} onChange={(virtualSite) => onChange({ virtualSite })} />
      <SiteInput tenant={filter.tenant} value={site} set={filter.site !== ""} onChange={setSite} onCommit={commit} />
      <select className={filter.state === "all" ? "select" : "select set"} aria-label="State" value={filter.state} onChange={(e) => onChange({ state: e.target.value as AlertFilter["state"] })}>
        <option value="all">All states</option>
        <option value="active">Active</option>
        <option value="suppressed">Silenced or inhibited</option>
      </select>
    </form>
  );
}

function AlertTable({ alerts, tenants }: { alerts: readonly Alert[]; tenants: boolean }) {
  return (
    <div className="card table-wrap" tabIndex={0} role="region" aria-label="Table of alerts">
      <table className="alerts stacks">
        <thead>
          <tr>
            <th scope="col">Severity</th>
            <th scope="col">Alert</th>
            <th scope="col">Site</th>
            <th scope="col">Virtual sites</th>
            <th scope="col">Since</th>
            <th scope="col">State</th>
          </tr>
        </thead>
        <tbody>
          {alerts.map((a) => (
            <tr key={`${a.tenant}/${a.fingerprint}`} data-alert={a.fingerprint} data-state={a.state}>
              <td className="alert-severity">
                <Severity severity={a.severity} />
              </td>
              <th scope="row" className="alert-name">
                <Link href={alertPath(a)}>{a.name}</Link>
                <div className="muted small">{summaryOf(a)}</div>
              </th>
              <td data-label="Site">
                {a.site ? <Link href={sitePath({ tenant: a.tenant, name: a.site })}>{a.site}</Link> : <span className="muted">{a.region ? `region ${a.region}` : "no single site"}</span>}
                {tenants && <div className="muted small">{a.tenant}</div>}
              </td>
              <td className="alert-vs small" data-label="Virtual sites">
                {a.virtualSites.length > 0 ? a.virtualSites.join(", ") : DASH}
              </td>
              <td className="nowrap" data-label="Since">
                <Ago time={a.startsAt} none={DASH} />
              </td>
              <td data-label="State">
                <AlertStateChip alert={a} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function AlertStateChip({ alert: a }: { alert: Alert }) {
  if (a.state === "resolved") return <span className="chip">resolved</span>;
  return a.state === "active" ? <span className="chip firing">firing</span> : <span className="chip">{suppressedText(a)}</span>;
}
