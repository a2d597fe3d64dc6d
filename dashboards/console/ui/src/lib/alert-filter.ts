// What the alerts page shows; it lives in the URL.

import type { Alert, SilenceState } from "../api/types";
import { ALERT_SEVERITIES, type AlertSeverity } from "./severity";

export interface AlertFilter {
  tenant: string;
  virtualSite: string;
  site: string;
  severity: AlertSeverity | "";
  state: "active" | "suppressed" | "all";
  q: string;
}

const STATES = ["active", "suppressed", "all"] as const;
export const SILENCE_STATES = ["active", "pending", "expired", "all"] as const;

export function parseAlertFilter(search: string): AlertFilter {
  const p = new URLSearchParams(search);
  const get = (k: string) => p.get(k) ?? "";
  return {
    tenant: get("tenant"),
    virtualSite: get("virtualSite"),
    site: get("site"),
    severity: ALERT_SEVERITIES.find((s) => s === get("severity")) ?? "",
    state: STATES.find((s) => s === get("state")) ?? "all",
    q: get("q"),
  };
}

export function formatAlertFilter(f: AlertFilter): string {
  const p = new URLSearchParams();
  for (const k of ["tenant", "virtualSite", "site", "severity"] as const) if (f[k]) p.set(k, f[k]);
  if (f.state !== "all") p.set("state", f.state);
  if (f.q) p.set("q", f.q);
  return p.toString();
}

export const alertsHref = (f: Partial<AlertFilter>): string => {
  const s = formatAlertFilter({ ...parseAlertFilter(""), ...f });
  return s ? `/alerts?${s}` : "/alerts";
};

/** The groups of the same alerts. */
export const groupsHref = (f: AlertFilter): string => `/alerts?${new URLSearchParams([["tab", "groups"], ...new URLSearchParams(formatAlertFilter(f))]).toString()}`;

export const silencesHref = (tenant = "", state: SilenceState | "all" = "active"): string => {
  const p = new URLSearchParams({ tab: "silences" });
  if (tenant) p.set("tenant", tenant);
  if (state !== "active") p.set("silences", state);
  return `/alerts?${p.toString()}`;
};

export const alertPath = (a: Pick<Alert, "fingerprint" | "tenant">): string =>
  `/alerts/${encodeURIComponent(a.fingerprint)}${a.tenant ? `?tenant=${encodeURIComponent(a.tenant)}` : ""}`;

/** The one line that says what is wrong. */
export const summaryOf = (a: Pick<Alert, "annotations">): string => a.annotations.summary || a.annotations.description || a.annotations.message || "";

/** Whether an alert says that its runbook is a console's, under whichever name that is reached. */
export const isShippedRunbook = (url: string | undefined, alert: string): boolean => /^(https?:\/\/[^/]+)?\/runbooks\/\w+$/.test(url ?? "") && url!.endsWith(`/runbooks/${alert}`);

/** A link from an annotation; anything but http(s) is none. */
export function safeURL(s: string | undefined): string {
  try {
    const u = new URL(s ?? "");
    return u.protocol === "https:" || u.protocol === "http:" ? u.href : "";
  } catch {
    return "";
  }
}

/** Why an alert tells nobody: silenced, inhibited, or both. */
export function suppressedText(a: Pick<Alert, "silencedBy" | "inhibitedBy">): string {
  return [a.silencedBy.length > 0 && "silenced", a.inhibitedBy.length > 0 && "inhibited"].filter(Boolean).join(", ") || "suppressed";
}

/** The expression of an alert's rule, which the link to who raised it carries; "" for one without. */
export function expressionOf(generatorURL: string): string {
  try {
    return new URL(generatorURL).searchParams.get("g0.expr") ?? "";
  } catch {
    return "";
  }
}
