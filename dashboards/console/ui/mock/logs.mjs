// Invented log lines for the mock, with a search and a tail as the console's.

import { invalidField, listOf, notFound } from "./check.mjs";
import { random } from "./fleet.mjs";

const FIELDS = {
  severity: "severity", level: "severity", "log.level": "severity", stream: "stream", "log.iostream": "stream", id: "id", "event.id": "id", node: "node", "host.name": "node",
  namespace: "namespace", "orchestrator.namespace": "namespace", "kubernetes.namespace": "namespace", pod: "pod", "orchestrator.resource.name": "pod", "kubernetes.pod.name": "pod",
  container: "container", "container.name": "container", "kubernetes.container.name": "container", unit: "unit", "systemd.unit": "unit", site: "site", "muster.site": "site",
  region: "region", "muster.region": "region", message: "message",
};

class QueryError extends Error {}

/** A small part of internal/logquery: words, phrases, field:value, AND, OR, NOT, brackets, *. */
export function parseQuery(text) {
  let pos = 0;
  const fail = (at, what) => {
    throw new QueryError(`at ${at + 1}: ${what}`);
  };
  const space = () => {
    while (/\s/.test(text[pos] ?? "")) pos++;
  };
  const word = (w) => {
    space();
    const m = new RegExp(`^(?:${w})(?=[\\s()]|$)`).exec(text.slice(pos));
    if (m) pos += m[0].length;
    return !!m;
  };
  const or = () => {
    let left = and();
    while (word("OR|\\|\\|")) {
      const [a, b] = [left, and()];
      left = (r) => a(r) || b(r);
    }
    return left;
  };
  const and = () => {
    let left = not();
    for (;;) {
      const joined = word("AND|&&");
      space();
      if (!joined && (pos >= text.length || text[pos] === ")" || /^(OR\b|\|\|)/.test(text.slice(pos)))) return left;
      const [a, b] = [left, not()];
      left = (r) => a(r) && b(r);
    }
  };
  const not = () => {
    if (word("NOT")) {
      const a = not();
      return (r) => !a(r);
    }
    space();
    if (text[pos] === "-" || text[pos] === "!") {
      pos++;
      const a = not();
      return (r) => !a(r);
    }
    return leaf();
  };
  const value = () => {
    const start = pos;
    if (text[pos] === '"') {
      let v = "";
      for (pos++; pos < text.length && text[pos] !== '"'; pos++) {
        if (text[pos] === "\\") pos++;
        v += text[pos] ?? "";
      }
      if (text[pos++] !== '"') fail(start, "the quote is not closed");
      return { v, phrase: true };
    }
    if (text[pos] === "/") {
      const m = /^\/((?:[^/\\]|\\.)*)\/(?=[\s)]|$)/.exec(text.slice(pos));
      if (!m) fail(pos, "the regular expression is not closed by a slash; to search for a slash, put the text in quotes");
      pos += m[0].length;
      try {
        return { re: new RegExp(`^(?:${m[1]})$`) };
      } catch (e) {
        fail(start, `not a regular expression: ${e.message}`);
      }
    }
    const range = /^(?:([<>]=?)(-?\d+(?:\.\d+)?)|([[{])\s*(\S+)\s+TO\s+([^\s\]}]+)\s*([\]}]))/.exec(text.slice(pos));
    if (range) {
      pos += range[0].length;
      const [, op, n, open, from, to, close] = range;
      const ends = op ? [op[0] === ">" ? Number(n) : -Infinity, op[0] === "<" ? Number(n) : Infinity] : [from === "*" ? -Infinity : Number(from), to === "*" ? Infinity : Number(to)];
      if (ends.some(Number.isNaN)) fail(start, "want a number such as 500, -3 or 0.25, or * for an open end");
      const out = op ? op.length === 1 : false;
      return { range: (v) => v > ends[0] && v < ends[1] || (v === ends[0] && !out && open !== "{") || (v === ends[1] && !out && close !== "}") };
    }
    let v = "";
    for (; pos < text.length && !/[\s()":]/.test(text[pos]); pos++) {
      if (text[pos] === "\\") pos++;
      v += text[pos] ?? "";
    }
    if (v === "") fail(start, start >= text.length ? "the query ends where a word or a phrase is wanted" : `${JSON.stringify(text[start])} is not expected here; to search for it, put it in quotes`);
    return { v, phrase: false };
  };
  const fits = (field, { v = "", phrase, re, range }) => {
    const want = v.toLowerCase();
    const of = (r) => (field.startsWith("labels.") ? (r.labels?.[field.slice(7)] ?? "") : r[field]) ?? "";
    if (re && field === "message") return (r) => r.message.toLowerCase().split(/[^\p{L}\p{N}_.]+/u).some((w) => w !== "" && re.test(w));
    if (re) return (r) => of(r) !== "" && re.test(of(r));
    if (range) return (r) => /^-?\d+(\.\d+)?$/.test(of(r)) && range(Number(of(r)));
    if (field === "message") return (r) => r.message.toLowerCase().includes(want);
    if (!phrase && v === "*") return (r) => of(r) !== "";
    if (!phrase && v.includes("*")) {
      const re = new RegExp(`^${v.split("*").map((p) => p.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`);
      return (r) => re.test(of(r));
    }
    return field === "severity" ? (r) => of(r).toLowerCase() === want : (r) => of(r) === v;
  };
  const leaf = () => {
    space();
    const start = pos;
    if (text[pos] === "(") {
      pos++;
      const a = or();
      space();
      if (text[pos++] !== ")") fail(start, "the bracket is not closed");
      return a;
    }
    if (text[pos] === ")") fail(pos, 'a word or a phrase is wanted before ")"');
    if (/^(AND|OR)(\s|$)/.test(text.slice(pos))) fail(pos, "a word or a phrase is wanted before the operator; to search for the word itself, put it in quotes");
    const m = /^((?:[A-Za-z0-9_.@/-]|\\.)+):/.exec(text.slice(pos));
    if (!m) return fits("message", value());
    const name = m[1].replace(/\\(.)/g, "$1");
    const field = FIELDS[name] ?? (/^labels\../.test(name) ? name : undefined);
    if (!field) fail(pos, `there is no field "${name}" (if it is text to search for, put it in quotes); the fields are ${Object.keys(FIELDS).filter((f) => !f.includes(".")).join(", ")}`);
    pos += m[0].length;
    if (pos >= text.length || /\s/.test(text[pos])) fail(pos, `a value is wanted right after "${name}:"`);
    return fits(field, value());
  };
  space();
  if (pos >= text.length) return () => true;
  const all = or();
  space();
  if (pos < text.length) fail(pos, `"${text[pos]}" closes nothing`);
  return all;
}

const AGO = { s: 1000, m: 60_000, h: 3600_000, d: 86_400_000, w: 7 * 86_400_000 };

/** ms of a time as the API takes it; NaN for none. */
function timeOf(s, now) {
  if (/^\d+(\.\d+)?$/.test(s)) return Number(s) * 1000;
  if (s === "now") return now;
  const m = /^now-(\d+)([smhdw])$/.exec(s);
  if (m) return now - Number(m[1]) * AGO[m[2]];
  return /^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?$/.test(s) ? Date.parse(s) : NaN;
}

const APPS = [
  ["shop", "checkout", ["GET /api/cart 200 in 14ms", "POST /api/orders 201 in 48ms", "GET /healthz 200 in 0ms"]],
  ["shop", "catalog", ["reloaded 4,211 products in 380ms", "cache hit ratio 0.982", "GET /api/products?page=3 200 in 9ms"]],
  ["payments", "gateway", ["authorised payment pay_81f2 for 41.90 EUR", "settled batch 2026-11 with 312 payments"]],
  ["kube-system", "cilium", ["endpoint regeneration finished in 84ms", "policy recalculated for 12 identities"]],
];
const UNITS = ["kubelet.service", "containerd.service", "sshd.service"];
const BAD = [
  ["critical", "fatal: runtime: out of memory: cannot allocate 268435456-byte block"],
  ["error", "could not connect to database db-0.db.shop.svc:5432: connection refused"],
  ["error", 'level=error msg="upload failed" attempt=3 err="context deadline exceeded"'],
  ["warning", "request took 4.2s, which is longer than 2s: GET /api/orders?customer=88121"],
  ["warning", "certificate of peer 10.42.0.17 expires in 6 days"],
];

export class MockLogs {
  constructor(fleet, now = Date.now(), lines = 9000) {
    this.rand = random(11);
    this.fleet = fleet;
    this.lines = []; // oldest first; of equal times the first made first
    this.down = new Map();
    this.late = new Set();
    this.tails = new Set();
    this.next = 1;
    const sites = [...fleet.sites.values()].filter((s) => s.phase !== "Approved");
    this.sites = sites.filter((_, i) => i % 5 === 0);
    if (this.sites.length === 0) return;
    for (let i = 0; i < lines; i++) {
      // Half in the last hour, the rest over the week before: dense now, thin then.
      const age = i % 2 ? this.rand() * 3600_000 : this.rand() ** 2 * 7 * 86_400_000;
      this.lines.push(this.invent(now - age));
    }
    // Something happened 20 minutes ago.
    for (let i = 0; i < 160; i++) this.lines.push(this.invent(now - 20 * 60_000 - this.rand() * 150_000, { severity: "error", message: BAD[1][1], app: APPS[0], site: this.sites[2] ?? this.sites[0] }));
    this.lines.sort((a, b) => (a.timestamp < b.timestamp ? -1 : 1));
    this.lines.forEach((l) => (l.seq = this.next++));
  }

  invent(t, o = {}) {
    const s = o.site ?? this.sites[Math.floor(this.rand() ** 1.7 * this.sites.length)];
    const bad = o.message === undefined && this.rand() < 0.12 ? BAD[Math.floor(this.rand() * BAD.length)] : undefined;
    const unit = !o.app && this.rand() < 0.2 ? UNITS[Math.floor(this.rand() * UNITS.length)] : "";
    const [namespace, app, texts] = o.app ?? APPS[Math.floor(this.rand() * APPS.length)];
    const nano = String(Math.floor(this.rand() * 1e6)).padStart(6, "0");
    const line = {
      timestamp: new Date(t).toISOString().replace("Z", `${nano}Z`), tenant: s.tenant, site: s.name, region: s.region, node: `${s.name}-n${1 + Math.floor(this.rand() * 3)}`,
      namespace: unit ? "" : namespace, pod: unit ? "" : `${app}-${(s.name.length * 7919).toString(16)}-${"bcdfg"[s.name.length % 5]}x2`, container: unit ? "" : "app", unit,
      severity: o.severity ?? bad?.[0] ?? (this.rand() < 0.1 ? "debug" : this.rand() < 0.05 ? "" : "info"),
      message: o.message ?? bad?.[1] ?? (unit ? "Reconciling state of the node with its specification" : texts[Math.floor(this.rand() * texts.length)]),
      id: Math.floor(this.rand() * 2 ** 52).toString(36).padStart(11, "0"), seq: 0,
    };
    if (!unit) {
      line.stream = bad ? "stderr" : "stdout";
      line.labels = { app, "app.kubernetes.io/version": "1.14.2" };
    }
    return line;
  }

  /** A line comes in now, from a region that can be asked. */
  add(o = {}) {
    const site = o.site ? [...this.fleet.sites.values()].find((s) => s.name === o.site && (!o.tenant || s.tenant === o.tenant)) : undefined;
    if (this.sites.length === 0) return;
    const l = this.invent(Date.now(), { ...(o.message ? { message: o.message, app: APPS[0] } : {}), ...(o.severity ? { severity: o.severity } : {}), ...(site ? { site } : {}) });
    l.seq = this.next++;
    l.timestamp = l.timestamp.replace(/\d{6}Z$/, `${String(l.seq % 1e6).padStart(6, "0")}Z`); // in the order that they came
    this.lines.push(l);
    for (const t of this.tails) if (t.fits(l) && !this.down.has(l.region)) t.hits([l], this.idOf(l.seq));
  }

  /** A region that is late answers searches without patience alone. */
  setRegion(region, reason, late) {
    if (late) this.late.add(region);
    else this.late.delete(region);
    if (reason) this.down.set(region, reason);
    else this.down.delete(region);
    for (const t of this.tails) t.missing(this.missing(), this.idOf(this.next - 1));
  }

  missing = () => [...this.down].sort().map(([region, reason]) => ({ region, reason }));
  idOf = (seq) => Buffer.from(JSON.stringify({ s: seq })).toString("base64url");

  /** The test that a line must pass, or a problem. */
  filter(q, tenant, now) {
    let query;
    try {
      query = parseQuery(q.get("query") ?? "");
    } catch (e) {
      if (e instanceof QueryError) return invalidField("query", e.message);
      throw e;
    }
    const at = { from: -Infinity, to: Infinity };
    for (const k of ["from", "to"]) {
      if (!q.get(k)) continue;
      at[k] = timeOf(q.get(k), now);
      if (Number.isNaN(at[k])) return invalidField(k, "want RFC 3339, such as 2026-11-21T10:30:00Z, a day, Unix seconds, or now-1h");
    }
    if (at.to < at.from) return invalidField("to", "is before from");
    const vs = q.get("virtualSite") && (q.get("virtualSite").includes("/") ? q.get("virtualSite") : `shared/${q.get("virtualSite")}`);
    if (vs && !this.fleet.virtualSites().some((v) => v.tenant === tenant && `${v.namespace}/${v.name}` === vs)) return notFound(`there is no virtual site "${vs}"`);
    const [sites, namespaces, severities] = ["site", "namespace", "severity"].map((k) => listOf(q, k));
    const member = (l) => this.fleet.sites.get(`${l.tenant}/${l.site}`)?.view.virtualSites.includes(vs);
    const fits = (l) =>
      l.tenant === tenant && (sites.length === 0 || sites.includes(l.site)) && (namespaces.length === 0 || namespaces.includes(l.namespace)) &&
      (severities.length === 0 || severities.includes(l.severity)) && (!vs || member(l)) && query(l);
    return { fits, from: at.from, to: at.to };
  }

  search(q, tenant) {
    const print = JSON.stringify([tenant, ...["query", "from", "to", "virtualSite", "site", "namespace", "severity"].map((k) => q.get(k))]);
    let cursor;
    if (q.get("cursor")) {
      try {
        cursor = JSON.parse(Buffer.from(q.get("cursor"), "base64url").toString());
      } catch {
        return invalidField("cursor", "is not a cursor of this API");
      }
      if (cursor.p !== print) return invalidField("cursor", "belongs to another search: hand it back with the same parameters");
    }
    const now = cursor?.now ?? Date.now();
    const f = this.filter(q, tenant, now);
    if (f.problem) return f;
    const time = (l) => Date.parse(l.timestamp);
    const patience = q.get("patience");
    const late = patience ? this.late : new Set();
    const all = this.lines.filter((l) => !this.down.has(l.region) && !late.has(l.region) && time(l) >= f.from && time(l) < Math.min(f.to, now + 1) && f.fits(l)).sort((a, b) => (a.timestamp < b.timestamp ? 1 : a.timestamp > b.timestamp ? -1 : a.id < b.id ? 1 : -1));
    const limit = Number(q.get("limit") || 100);
    const rest = cursor ? all.filter((l) => l.timestamp < cursor.t || (l.timestamp === cursor.t && l.id < cursor.id)) : all;
    const hits = rest.slice(0, limit).map(({ seq, ...l }) => l);
    const last = hits.at(-1);
    const start = Number.isFinite(f.from) ? f.from : all.length ? time(all.at(-1)) : now;
    const span = Math.max(1000, Math.min(f.to, now) - start);
    const step = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 86400].find((s) => span / 1000 / s <= 120) ?? 86400;
    const first = Math.floor(start / 1000 / step) * step * 1000;
    const counts = new Array(Math.floor((start + span - 1 - first) / 1000 / step) + 1).fill(0);
    for (const l of all) counts[Math.min(counts.length - 1, Math.floor((time(l) - first) / 1000 / step))]++;
    return {
      json: {
        hits, total: all.length, histogram: all.length ? { start: new Date(first).toISOString(), stepSeconds: step, counts } : null,
        missingRegions: [...this.missing(), ...[...late].map((region) => ({ region, reason: `has not answered yet, after ${patience}`, late: true }))],
        ...(rest.length > limit ? { nextCursor: Buffer.from(JSON.stringify({ p: print, now, t: last.timestamp, id: last.id })).toString("base64url") } : {}),
      },
    };
  }

  /** Begins a tail on the response, or returns a problem. */
  tail(req, res, q, tenant) {
    const f = this.filter(q, tenant, Date.now());
    if (f.problem) return f;
    let seq = this.next - 1;
    const id = req.headers["last-event-id"];
    if (id) {
      try {
        seq = JSON.parse(Buffer.from(id, "base64url").toString()).s;
      } catch {
        return invalidField("Last-Event-ID", "is not an id of this stream: connect without it");
      }
    }
    res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const event = (type, data, at) => res.write(`event: ${type}\nid: ${at}\ndata: ${JSON.stringify(data)}\n\n`);
    const t = {
      res, fits: f.fits,
      hits: (lines, at) => event("hits", { hits: lines.map(({ seq: _, ...l }) => l) }, at),
      missing: (list, at) => event("missing", { missingRegions: list }, at),
    };
    res.write("retry: 2000\n\n");
    t.missing(this.missing(), this.idOf(seq));
    const late = this.lines.filter((l) => l.seq > seq && f.fits(l));
    if (late.length > 0) t.hits(late, this.idOf(this.next - 1));
    this.tails.add(t);
    req.on("close", () => this.tails.delete(t));
    return undefined;
  }

  drop() {
    for (const t of this.tails) t.res.destroy();
  }
}
