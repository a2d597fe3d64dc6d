import { Link } from "wouter";
import { type AlertScope, useAlertState, useTopAlerts } from "../api/alert-queries";
import { alertPath, alertsHref, summaryOf } from "../lib/alert-filter";
import { DASH, formatCount } from "../lib/format";
import { type LogFilter, logsHref } from "../lib/log-filter";
import { ServiceNote } from "./service-note";
import { SeverityMark } from "./severity";
import { Skeleton } from "./states";
import { Ago } from "./time";

const TOP = 5;

/** The worst alerts of a site or a virtual site, and the ways to all of them and to the logs. */
export function AlertPanel({ scope, showSite }: { scope: AlertScope; showSite?: boolean }) {
  const list = useTopAlerts(scope, TOP);
  const all = alertsHref({ tenant: scope.tenant ?? "", virtualSite: scope.virtualSite ?? "", site: scope.site ?? "" });
  const quiet = useAlertState(scope).data?.suppressed ?? 0;
  const where: Partial<LogFilter> = { tenant: scope.tenant ?? "", virtualSite: scope.virtualSite ?? "", site: scope.site ?? "" };
  return (
    <section className="card" aria-label="Firing alerts">
      <header>
        <h2>
          Firing alerts {list.data && list.data.total > 0 && <span className="muted">{formatCount(list.data.total)}</span>}
        </h2>
        <span className="row wrap small">
          <Link href={logsHref(where)}>Logs</Link>
          <Link href={logsHref({ ...where, severity: ["critical", "error"] })}>Errors in logs</Link>
          <Link href={all}>All alerts</Link>
        </span>
      </header>
      {list.isPending && (
        <div className="body">
          <Skeleton height={30} count={2} />
        </div>
      )}
      {list.error && (
        <div className="body">
          <ServiceNote slim error={list.error} service="alerts" older={list.data !== undefined} onRetry={() => void list.refetch()} />
        </div>
      )}
      {list.data?.alerts.length === 0 && !list.error && quiet === 0 && <p className="body muted">None.</p>}
      {list.data && list.data.alerts.length > 0 && (
        <ul className="alert-panel">
          {list.data.alerts.map((a) => (
            <li key={a.fingerprint} data-alert={a.fingerprint}>
              <SeverityMark severity={a.severity} />
              <span className="truncate">
                <Link href={alertPath(a)}>{a.name}</Link> <span className="muted small">{a.severity}</span>
              </span>
              <span className="small muted">
                <Ago time={a.startsAt} none={DASH} />
              </span>
              <span className="why small muted truncate">
                {showSite && a.site && `${a.site}: `}
                {summaryOf(a)}
              </span>
            </li>
          ))}
        </ul>
      )}
      {list.data && !list.error && quiet > 0 && (
        <p className="body muted">
          {list.data.alerts.length === 0 ? "None that tells anybody: " : "Beside these "}
          <Link href={alertsHref({ tenant: scope.tenant ?? "", virtualSite: scope.virtualSite ?? "", site: scope.site ?? "", state: "suppressed" })}>{formatCount(quiet)} silenced or inhibited</Link>
        </p>
      )}
    </section>
  );
}
