// Checks requests as the console does: unknown, repeated and malformed parameters and
// fields are refused, and named.

export const problem = (status, title, detail, extra = {}) => ({ problem: { type: `urn:muster:problem:${title.toLowerCase().replaceAll(" ", "-")}`, title, status, detail, ...extra } });
export const notFound = (d) => problem(404, "Not Found", d);
export const conflict = (d, more) => problem(409, "Conflict", d, more);
export const invalid = (errors) => problem(400, "Bad Request", errors.map((e) => `${e.field}: ${e.detail}`).join("; "), { type: "urn:muster:problem:invalid", errors });
export const invalidField = (field, detail) => invalid([{ field, detail }]);
export const unavailable = (d) => problem(503, "Service Unavailable", d, { type: "urn:muster:problem:unavailable" });
export const forbidden = (d) => problem(403, "Forbidden", d);

const text = (max) => (v) => ([...v].length > max ? `want at most ${max} characters` : "");
const oneOf = (...want) => (v) => (want.includes(v) ? "" : `${JSON.stringify(v)}: want one of ${want.join(", ")}`);
const like = (re, want) => (v) => (re.test(v) ? "" : `${JSON.stringify(v)}: want ${want}`);
const whole = (lo, hi) => (v) => (/^\d+$/.test(v) && Number(v) >= lo && Number(v) <= hi ? "" : `${JSON.stringify(v)}: want a whole number from ${lo} to ${hi}`);

const tenant = like(/^(?=.{1,30}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, "a tenant's name");
const limit = whole(1, 1000);
const cursor = text(1024);
const logFilters = { tenant, query: text(4096), from: text(64), to: text(64), virtualSite: text(320), site: text(63), namespace: text(63), severity: text(64) };
const alertScope = { tenant, virtualSite: text(320), site: text(63) };

/** The parameters of each kind of operation. */
export const PARAMS = {
  sites: { tenant, virtualSite: text(320), region: text(63), colour: oneOf("green", "orange", "red", "grey"), phase: text(20), q: text(200), sort: oneOf("score", "name"), limit, cursor },
  inventory: { tenant, cursor, limit: whole(0, 10_000), q: text(2000), sort: text(1000), columns: text(8000), group: text(317), format: oneOf("json", "csv") },
  links: { tenant, cursor, limit: whole(0, 1000), q: text(2000), sort: text(1000), by: text(317) },
  siteMap: { tenant, q: text(2000), by: text(317) },
  siteDistributions: { tenant, q: text(2000), of: text(4000) },
  paged: { tenant, limit, cursor },
  cost: { tenant, limit, cursor, by: oneOf("site", "virtualsite", "tenant"), sort: oneOf("name", "series", "samples", "bytes", "pushes", "refused", "lines", "logBytes", "cpu", "memory"), virtualSite: text(320), q: text(200), patience: text(64) },
  costNames: { tenant, site: text(63), patience: text(64) },
  tenant: { tenant },
  triedNow: { tenant, patience: text(64) },
  view: { tenant, shared: oneOf("true") },
  savedView: { tenant, shared: oneOf("true"), new: oneOf("true") },
  pods: { tenant, site: text(63), limit, cursor: text(4096) },
  podLog: { tenant, container: text(63), previous: oneOf("true"), lines: whole(1, 10_000) },
  explain: { tenant, shadow: oneOf("true") },
  rollouts: { tenant, limit, cursor, namespace: text(63), state: oneOf("active", "ended", "all"), q: text(200), object: text(400), phase: oneOf("Queued", "Progressing", "Paused", "RollingBack", "RolledBack", "Completed", "Superseded", "Invalid") },
  rolloutSites: { tenant, limit: whole(1, 10_000), cursor, q: text(63), wave: whole(1, 100_000), step: oneOf("waiting", "offline", "held", "updating", "ready", "passed", "failed", "rolledBack") },
  vs: { tenant, namespace: text(63) },
  range: { tenant, query: text(16384), start: text(64), end: text(64), step: text(32), timeout: text(32), limit: whole(0, 1_000_000), within: oneOf("least", "largest", "coverage") },
  instant: { tenant, query: text(16384), time: text(64), timeout: text(32), limit: whole(0, 1_000_000) },
  replay: { tenant, since: text(32), cursor },
  names: { tenant, label: text(128), match: text(16384), q: text(200), start: text(64), end: text(64), limit: whole(1, 10_000) },
  condition: { query: text(16384), site: text(63) },
  logs: { ...logFilters, limit, cursor: text(16384), patience: text(64) },
  tail: logFilters,
  alerts: { ...alertScope, severity: oneOf("critical", "warning", "info"), state: oneOf("active", "suppressed", "all"), q: text(200), limit, cursor },
  alertScope,
  alertGroups: { ...alertScope, severity: oneOf("critical", "warning", "info"), state: oneOf("active", "suppressed", "all"), q: text(200), sort: oneOf("severity", "count", "newest"), limit },
  loudness: { tenant, limit },
  timeline: { tenant, site: text(63), virtualSite: text(320), kind: oneOf("colour", "alert", "notification", "silence", "maintenance", "registration", "connection", "policy", "rollout", "software"), from: text(64), to: text(64), limit, cursor },
  silences: { tenant, state: oneOf("active", "pending", "expired", "all") },
  none: {},
};
const MANY = { timeline: ["site", "virtualSite", "kind"], rollouts: ["phase"], rolloutSites: ["step"], logs: ["site", "namespace", "severity"], tail: ["site", "namespace", "severity"] };

/** A problem, or undefined when all parameters are good. */
export function checkParams(q, kind) {
  const known = PARAMS[kind];
  const errors = [];
  for (const name of new Set(q.keys())) {
    const many = MANY[kind]?.includes(name);
    const values = many ? listOf(q, name) : q.getAll(name);
    if (!known[name]) errors.push({ field: name, detail: `unknown parameter; want ${Object.keys(known).join(", ") || "none"}` });
    else if (!many && values.length > 1) errors.push({ field: name, detail: "given more than once" });
    else if (values.length > 200) errors.push({ field: name, detail: `${values.length} values, want at most 200` });
    else for (const v of values) if (v !== "" && known[name](v)) errors.push({ field: name, detail: known[name](v) });
  }
  return errors.length > 0 ? invalid(errors) : undefined;
}

export const listOf = (q, name) => q.getAll(name).flatMap((v) => v.split(",")).map((v) => v.trim()).filter(Boolean);

/** A problem, or undefined when the body is an object with no other fields than these. */
export function checkBody(body, fields) {
  if (!body || typeof body !== "object" || Array.isArray(body)) return problem(400, "Bad Request", "the body is no JSON object");
  const unknown = Object.keys(body).find((k) => !fields.includes(k));
  return unknown ? invalidField(unknown, `unknown field; want ${fields.join(", ")}`) : undefined;
}

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3600_000, d: 86_400_000 };

/** ms of a Go duration; days only where the API knows them. NaN for anything else. */
export function durationOf(s, days = false) {
  const re = days ? /(\d+(?:\.\d+)?)(ms|[smhd])/g : /(\d+(?:\.\d+)?)(ms|[smh])/g;
  if (typeof s !== "string" || s === "" || s.replace(re, "") !== "") return NaN;
  return [...s.matchAll(re)].reduce((sum, m) => sum + Number(m[1]) * UNITS[m[2]], 0);
}

/** As Go writes it. */
export const goDuration = (ms) => {
  const s = Math.round(ms / 1000);
  return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60)}m${s % 60}s`.replace(/^0h(?=.)/, "").replace(/^0m(?=\d+s)/, "");
};
