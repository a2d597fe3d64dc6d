import type { ReactNode } from "react";
import { Problem } from "../api/client";
import { ProblemNote } from "./states";

export type Service = "logs" | "alerts" | "silences";

const REMEDY: Record<Service, { title: string; what: string; remedy: ReactNode }> = {
  logs: {
    title: "Logs can't be searched now",
    what: "search logs",
    remedy: (
      <>
        Logs are kept by the regionals, and this console asks them. Check that <code>muster regional</code> runs with a log store (<code>logs</code> in its configuration) and that
        this console reaches it. The rest of the console goes on without logs.
      </>
    ),
  },
  alerts: {
    title: "The state of alerts is not known now",
    what: "read the alerts",
    remedy: (
      <>
        The alerting role does not answer. Check that <code>muster alerting</code> runs and look at its log. This page tries again by itself. That nothing is shown here does not
        mean that nothing fires.
      </>
    ),
  },
  silences: {
    title: "Silences can't be read now",
    what: "read the silences",
    remedy: (
      <>
        The alerting role or its Alertmanager does not answer. Check that <code>muster alerting</code> runs and look at its log. Silences that were made go on.
      </>
    ),
  },
};

const RIGHT: Record<Service, string> = { logs: "get logs.muster.dev", alerts: "list sites.muster.dev", silences: "get silences.muster.dev" };

/** Whether a part behind the console is not there, as opposed to a wrong question. */
export const isDown = (e: unknown): boolean => e instanceof Problem && [501, 502, 503, 504].includes(e.status);
export const isForbidden = (e: unknown): boolean => e instanceof Problem && e.status === 403;

/** What it means that logs or alerts can't be had, and what to do. */
export function ServiceNote({ error, service, older, onRetry, slim }: { error: unknown; service: Service; older?: boolean; onRetry?: () => void; slim?: boolean }) {
  const s = REMEDY[service];
  const p = error instanceof Problem ? error : null;
  if (p && isForbidden(p)) {
    return (
      <div className={slim ? "note slim" : "note"} role="alert">
        <strong>You have no right to see {service} here</strong>
        <p>{p.detail}</p>
        <p className="muted">
          Whoever administers the tenant can grant it: <code>{RIGHT[service]}</code> in the namespace <code>TENANT-system</code>.
        </p>
      </div>
    );
  }
  if (p && isDown(p)) {
    return (
      <div className={slim ? "note bad slim" : "note bad"} role="alert">
        <div>
          <strong>{older ? `${s.title}; what is shown is older` : s.title}</strong>
          <p>
            {p.detail || p.title} ({p.status})
          </p>
        </div>
        {!slim && <p>{s.remedy}</p>}
        {onRetry && (
          <button type="button" className="button" onClick={onRetry}>
            Try again
          </button>
        )}
      </div>
    );
  }
  return <ProblemNote error={error} doing={older ? `${s.what} anew; what is shown is older` : s.what} {...(onRetry ? { onRetry } : {})} {...(slim ? { slim } : {})} />;
}
