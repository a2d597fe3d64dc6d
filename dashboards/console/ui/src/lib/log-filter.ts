// What the logs page shows. It lives in the URL, so that a search can be shared.

import { type NamedRange, parseSpan, type TimeSpan } from "./time-span";

export interface LogFilter extends TimeSpan {
  query: string;
  /** "": the page chooses one. */
  tenant: string;
  virtualSite: string;
  site: string;
  namespace: string;
  severity: readonly string[];
  live: boolean;
}

export const LOG_RANGES: readonly NamedRange[] = [
  { id: "15m", label: "15 min", seconds: 900 },
  { id: "1h", label: "1 h", seconds: 3600 },
  { id: "6h", label: "6 h", seconds: 6 * 3600 },
  { id: "24h", label: "24 h", seconds: 24 * 3600 },
  { id: "7d", label: "7 d", seconds: 7 * 24 * 3600 },
];
export const DEFAULT_RANGE = "1h";

/** Worst first, as the intake names them. */
export const LOG_SEVERITIES = ["critical", "error", "warning", "notice", "info", "debug"] as const;

export function parseLogFilter(search: string): LogFilter {
  const p = new URLSearchParams(search);
  const get = (k: string) => p.get(k) ?? "";
  const span = parseSpan(p, LOG_RANGES, DEFAULT_RANGE);
  const live = get("live") === "1";
  return {
    query: get("query"),
    tenant: get("tenant"),
    virtualSite: get("virtualSite"),
    site: get("site"),
    namespace: get("namespace"),
    severity: [...new Set(get("severity").split(",").map((s) => s.trim()).filter(Boolean))],
    // What comes in from now on has no end: a live view shows a range up to now.
    ...(live && !span.range ? { range: LOG_RANGES[0]!.id, from: "", to: "" } : span),
    live,
  };
}

export function formatLogFilter(f: LogFilter): string {
  const p = new URLSearchParams();
  for (const k of ["query", "tenant", "virtualSite", "site", "namespace"] as const) if (f[k]) p.set(k, f[k]);
  if (f.severity.length > 0) p.set("severity", f.severity.join(","));
  if (f.range && f.range !== DEFAULT_RANGE) p.set("range", f.range);
  if (!f.range && f.from) p.set("from", f.from);
  if (!f.range && f.to) p.set("to", f.to);
  if (f.live) p.set("live", "1");
  return p.toString();
}

export const logsHref = (f: Partial<LogFilter>): string => {
  const s = formatLogFilter({ ...parseLogFilter(""), ...(f.from || f.to ? { range: "" } : {}), ...f });
  return s ? `/logs?${s}` : "/logs";
};

type Params = Record<string, string | undefined>;

/** The parameters that a search and a tail share. */
const filters = (f: LogFilter, tenant: string): Params => ({
  query: f.query.trim(), tenant, virtualSite: f.virtualSite, site: list(f.site), namespace: list(f.namespace), severity: f.severity.join(","),
});

const list = (s: string): string => s.split(",").map((x) => x.trim()).filter(Boolean).join(",");

export function searchParams(f: LogFilter, tenant: string): Params {
  return { ...filters(f, tenant), from: f.range ? `now-${f.range}` : f.from, to: f.range ? "" : f.to };
}

/** A tail begins now: it has no range. */
export const tailParams = filters;
