// What the logs page shows. It lives in the URL, so that a search can be shared.

import { zone } from "./zone";
import { parseTime } from "./time";

export interface LogFilter {
  query: string;
  /** "": the page chooses one. */
  tenant: string;
  virtualSite: string;
  site: string;
  namespace: string;
  severity: readonly string[];
  /** Name of a LOG_RANGE; "" when from and to say it. */
  range: string;
  from: string;
  to: string;
  live: boolean;
}

export interface LogRange {
  id: string;
  label: string;
  seconds: number;
}

export const LOG_RANGES: readonly LogRange[] = [
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
  const [from, to] = [get("from"), get("to")];
  const range = LOG_RANGES.some((r) => r.id === get("range")) ? get("range") : from || to ? "" : DEFAULT_RANGE;
  const live = get("live") === "1";
  return {
    query: get("query"),
    tenant: get("tenant"),
    virtualSite: get("virtualSite"),
    site: get("site"),
    namespace: get("namespace"),
    severity: [...new Set(get("severity").split(",").map((s) => s.trim()).filter(Boolean))],
    // What comes in from now on has no end: a live view shows a range up to now.
    range: live && !range ? LOG_RANGES[0]!.id : range,
    from: range || live ? "" : from,
    to: range || live ? "" : to,
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

/** What the range covers, in ms, as far as the page knows. */
export function spanOf(f: LogFilter, now: number): { start: number; end: number } | undefined {
  const r = LOG_RANGES.find((x) => x.id === f.range);
  if (r) return { start: now - r.seconds * 1000, end: now };
  const start = parseTime(f.from);
  if (start === undefined) return undefined;
  return { start, end: parseTime(f.to) ?? now };
}

/** A time of ours as the API takes it: RFC 3339 in UTC. */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString().replace(/\.000Z$/, "Z");

const two = (n: number): string => String(n).padStart(2, "0");

/** A time as people type it, in the console's zone and on a clock of 24 hours: 2026-11-25 20:00:00. "" for none. */
export function toTyped(time: string | number): string {
  const t = typeof time === "number" ? time : parseTime(time);
  if (t === undefined) return "";
  const d = new Date(t);
  if (zone.get() === "UTC") return d.toISOString().slice(0, 19).replace("T", " ");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** What was typed, as RFC 3339; "" for what is no time, such as the 31st of February. */
export function fromTyped(text: string): string {
  const m = /^(\d{4}-\d\d-\d\d)[ T]+(\d\d:\d\d(?::\d\d)?)$/.exec(text.trim());
  if (!m) return "";
  const t = new Date(`${m[1]}T${m[2]}${zone.get() === "UTC" ? "Z" : ""}`).getTime(); // without a zone: the browser's own
  return Number.isNaN(t) || !toTyped(t).startsWith(m[1]!) ? "" : rfc3339(t);
}

/** What an input for such a time has: one of the browser's own shows the clock of its language, and not the console's. */
export const TYPED_TIME = { type: "text", inputMode: "numeric", placeholder: "2026-11-25 20:00", maxLength: 19, autoComplete: "off", spellCheck: false } as const;
