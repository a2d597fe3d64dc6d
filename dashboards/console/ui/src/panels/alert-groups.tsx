import { useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { type GroupSort, useAlertGroups } from "../api/alert-queries";
import type { AlertGroup } from "../api/types";
import { ServiceNote } from "../components/service-note";
import { SeverityMark } from "../components/severity";
import { Empty, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { type AlertFilter, alertPath, summaryOf, suppressedText } from "../lib/alert-filter";
import { DASH, formatCount, plural } from "../lib/format";
import { sitePath } from "../lib/site";

const SORTS: readonly [GroupSort, string][] = [["severity", "Most severe"], ["newest", "Newest"], ["count", "Largest"]];
const SHOWN = 5;

/** What fires, as the routes group it. onSilence gets the labels that a group has in common. */
export function AlertGroups({ filter, tenants, onSilence }: { filter: AlertFilter; tenants: boolean; onSilence: (tenant: string, labels: Record<string, string>) => void }) {
  const [, navigate] = useLocation();
  const address = useSearch();
  const sort = SORTS.find(([id]) => id === new URLSearchParams(address).get("sort"))?.[0] ?? "severity";
  const list = useAlertGroups(filter, sort);
  const choose = (id: GroupSort) => {
    const p = new URLSearchParams(address);
    p.set("sort", id);
    navigate(`/alerts?${p.toString()}`, { replace: true });
  };
  return (
    <>
      <div className="row wrap spread">
        <p className="muted small">A group is what a receiver gets in one notification: alerts of a route with the same values of its group_by.</p>
        <div className="segmented" role="group" aria-label="Order of groups">
          {SORTS.map(([id, text]) => (
            <button key={id} type="button" aria-pressed={id === sort} onClick={() => choose(id)}>
              {text}
            </button>
          ))}
        </div>
      </div>
      {list.error && <ServiceNote error={list.error} service="alerts" older={list.data !== undefined} onRetry={() => void list.refetch()} />}
      {list.isPending && <Skeleton height={60} count={4} />}
      {list.data?.groups.length === 0 && (
        <div className="card">
          <Empty title="Nothing fires">
            <p>No alert that fires now fits.</p>
          </Empty>
        </div>
      )}
      {list.data?.groups.map((g) => (
        <Group key={`${g.tenant}/${g.receiver}/${JSON.stringify(g.labels)}`} group={g} tenants={tenants} onSilence={onSilence} />
      ))}
      {list.data && list.data.total > list.data.groups.length && <p className="muted small">{formatCount(list.data.groups.length)} of {plural(list.data.total, "group")}; narrow with the filters of All alerts.</p>}
    </>
  );
}

function Group({ group: g, tenants, onSilence }: { group: AlertGroup; tenants: boolean; onSilence: (tenant: string, labels: Record<string, string>) => void }) {
  const [all, setAll] = useState(false);
  const labels = Object.entries(g.labels).sort(([a], [b]) => (a < b ? -1 : 1));
  const name = labels.map(([k, v]) => (k === "alertname" ? v : `${k}=${v}`)).join(", ") || (g.receiver ? "all alerts of the route" : "no route");
  const counts = (["critical", "warning", "info"] as const).filter((s) => g.counts[s] > 0);
  return (
    <section className="card alert-group" aria-label={`Group ${name} of ${g.tenant} to ${g.receiver || "nobody"}`} data-group={name}>
      <header>
        <h2>
          {name} <span className="muted">{formatCount(g.total)}</span>
        </h2>
        <span className="row wrap small">
          {counts.map((s) => (
            <span key={s} className="row nowrap" style={{ gap: 4 }}>
              <SeverityMark severity={s} size={11} /> {g.counts[s]} {s}
            </span>
          ))}
          {g.suppressed > 0 && <span className="chip">{g.suppressed} silenced or inhibited</span>}
          <span className="muted">{g.receiver ? `to ${g.receiver}` : "nobody is told: no route takes it"}</span>
          {tenants && <span className="muted">{g.tenant}</span>}
          {g.counts.critical + g.counts.warning + g.counts.info > 0 && (
            <button type="button" className="button" onClick={() => onSilence(g.tenant, commonLabels(g))}>
              Silence {g.total > 1 ? `these ${formatCount(g.total)}…` : "it…"}
            </button>
          )}
        </span>
      </header>
      <ul className="alert-panel">
        {g.alerts.slice(0, all ? undefined : SHOWN).map((a) => (
          <li key={a.fingerprint} data-alert={a.fingerprint} data-state={a.state}>
            <SeverityMark severity={a.severity} />
            <span className="truncate">
              <Link href={alertPath(a)}>{a.name}</Link> {a.site ? <Link href={sitePath({ tenant: a.tenant, name: a.site })}>{a.site}</Link> : <span className="muted small">no single site</span>}{" "}
              {a.state !== "active" && <span className="chip">{suppressedText(a)}</span>}
            </span>
            <span className="small muted">
              <Ago time={a.startsAt} none={DASH} />
            </span>
            <span className="why small muted truncate">{summaryOf(a)}</span>
          </li>
        ))}
      </ul>
      {g.alerts.length > SHOWN && (
        <p className="body small">
          <button type="button" className="button quiet" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `Show ${g.total > g.alerts.length ? "the first " : "all "}${formatCount(g.alerts.length)}`}
          </button>
        </p>
      )}
    </section>
  );
}

/** The labels that all alerts of a group have with the same value; those it is grouped by, when it is cut. */
function commonLabels(g: AlertGroup): Record<string, string> {
  if (g.alerts.length < g.total) return g.labels;
  const [first, ...rest] = g.alerts;
  return Object.fromEntries(Object.entries(first?.labels ?? {}).filter(([k, v]) => k !== "tenant" && rest.every((a) => a.labels[k] === v)));
}
