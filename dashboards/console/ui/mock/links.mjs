// The links of the mock: figures that stay the same for a site, and get worse with its
// connectivity. The real ones are health/sites and what agents measure.

export const FIGURES = ["roundTrip", "loss", "sent", "received", "handshake", "reconnects", "requests", "errors"];

const seedOf = (text) => [...text].reduce((n, c) => (Math.imul(n, 31) + c.charCodeAt(0)) | 0, 7) >>> 0;
const tenth = (x) => Math.round(10 * x) / 10;

/** A figure of a site's link; null where it is not known. */
export function figureOf(s, name) {
  if (s.phase !== "Online" || s.unknown) return null;
  const u = (seedOf(s.tenant + s.name + name) % 1000) / 1000;
  const bad = 1 - (s.view.dimensions.connectivity.score ?? 100) / 100;
  switch (name) {
    case "roundTrip": return tenth(8 + 70 * u * u + 400 * bad);
    case "loss": return tenth(0.4 * u * u + 9 * bad);
    case "sent": return tenth(900 + 2600 * u);
    case "received": return tenth(120 + 300 * u);
    case "handshake": return tenth(20 + 150 * u + 900 * bad);
    case "reconnects": return Math.round(0.6 * u + 6 * bad);
    case "requests": return tenth(4 + 2 * u);
    case "errors": return tenth(bad > 0.2 ? 30 * bad : 0);
    default: return null;
  }
}

const LINES = {
  connection: { stream: 1, requests: 1.2 },
  target: { push: 1, logs: 0.4 },
  what: { "push unreachable": 1, "logs refused": 0.3 },
};

/** The series of an expression over the metrics of a site's link, as [labels, level]. */
export function linkSeries(query, s) {
  const f = (name) => figureOf(s, name);
  if (f("roundTrip") === null) return [];
  const by = (label, level) => Object.entries(LINES[label]).map(([value, share]) => [{ [label]: value }, level * share]);
  if (query.includes("traefik_service_")) {
    const services = ["checkout", "catalogue", "payments"];
    const level = query.startsWith("100 *") ? 0.4 : query.includes("duration_seconds") ? 0.08 : 12;
    return s.year > 2018 ? services.map((service, i) => [{ service }, level / (i + 1)]) : [];
  }
  if (query.includes("round_trip_seconds")) return by("connection", f("roundTrip") / 1000);
  if (query.includes("handshake_seconds")) return by("connection", f("handshake") / 1000);
  if (query.includes("segments_retransmitted")) return by("connection", f("loss"));
  if (query.includes("sent_bytes_total")) return [[{ direction: "sent" }, f("sent")], [{ direction: "received" }, f("received")]];
  if (query.includes("request_errors_total")) return f("errors") > 0 ? by("what", (f("requests") * f("errors")) / 100) : [[{ what: "push unreachable" }, 0]];
  if (query.includes("request_seconds_sum")) return by("target", f("roundTrip") / 500);
  if (query.includes("request_seconds_count")) return by("target", f("requests"));
  if (query.includes("connects_total")) return [[{ what: "opened" }, f("reconnects") / 20], [{ what: "failed" }, 0]];
  return [];
}

const MOST = 12;

export class MockLinks {
  constructor(inventory) {
    this.inventory = inventory;
    this.late = ""; // the regional that has not told the figures of its links yet
  }

  /** A figure of a site's link, as far as its regional has answered. */
  figure(s, name) {
    return this.late && this.inventory.value(s, "regional") === this.late ? null : figureOf(s, name);
  }

  list(q, tenants, res) {
    const by = q.get("by") || "region";
    if (["name", "score", "lastSeen", "reason"].includes(by)) return { problem: { type: "urn:muster:problem:invalid", title: "Bad Request", status: 400, detail: `by: links can't be grouped by ${by}`, errors: [{ field: "by", detail: `links can't be grouped by ${by}, which is different for most` }] } };
    const matching = this.inventory.matching(q, tenants);
    if (matching.problem) return matching;
    const page = new URLSearchParams({ q: q.get("q") ?? "", sort: q.get("sort") || "connectivity,-link.loss,-link.roundTrip", columns: "name", limit: q.get("limit") || "50", cursor: q.get("cursor") ?? "" });
    const { json } = this.inventory.list(page, tenants, res);
    const value = (s, column) => this.inventory.value(s, column);
    const regionals = this.inventory.split("regional", matching.found).map(({ value: name, query, sites }) => {
      const groups = this.inventory.split(by, sites).map((g) => ({ value: g.value, ...this.summary(`${query} ${g.query}`, g.sites) }));
      groups.sort((a, b) => 2 * b.counts.red + b.counts.orange - 2 * a.counts.red - a.counts.orange || b.sites - a.sites || (a.value < b.value ? -1 : 1));
      const shown = groups.length > MOST ? groups.slice(0, MOST - 1) : groups;
      const others = new Set(groups.slice(shown.length).map((g) => g.value));
      const rest = this.inventory.split(by, sites).filter((g) => others.has(g.value)).flatMap((g) => g.sites);
      return { name, ...this.summary(query, sites), groups: shown, more: rest.length > 0 ? this.summary("", rest) : null };
    });
    const links = json.sites.map(({ tenant, name }) => {
      const s = this.inventory.fleet.sites.get(`${tenant}/${name}`);
      const c = s.view.dimensions.connectivity;
      return {
        tenant, site: name, regional: value(s, "regional"), region: s.region, phase: s.phase, ...(s.view.lastSeen ? { lastSeen: s.view.lastSeen } : {}), colour: colourOf(c.score), connectivity: c.score,
        reason: s.view.reasons.find((r) => r.dimension === "connectivity")?.text ?? "", window: 120, ...Object.fromEntries(FIGURES.map((f) => [f, this.figure(s, f)])),
      };
    });
    return { json: { asOf: json.asOf, readable: json.readable, total: json.total, counts: countsOf(matching.found), by, regionals, links, ...(json.nextCursor ? { nextCursor: json.nextCursor } : {}), notes: [...json.notes, ...(this.late ? [`the figures of links to regional ${this.late} are not all known: it did not answer`] : [])] } };
  }

  summary(query, sites) {
    const known = (f) => sites.map((s) => this.figure(s, f)).filter((x) => x !== null).sort((a, b) => a - b);
    const median = (v) => v[Math.floor((v.length - 1) / 2)] ?? null;
    const sum = (v) => (v.length > 0 ? tenth(v.reduce((n, x) => n + x, 0)) : null);
    const scores = sites.map((s) => s.view.dimensions.connectivity.score).filter((x) => x !== null);
    return { query, sites: sites.length, counts: countsOf(sites), worst: scores.length > 0 ? Math.min(...scores) : null, roundTrip: median(known("roundTrip")), loss: median(known("loss")), sent: sum(known("sent")), received: sum(known("received")), reconnects: sum(known("reconnects")) };
  }
}

const colourOf = (score) => (score === null ? "grey" : score > 75 ? "green" : score >= 40 ? "orange" : "red");

function countsOf(sites) {
  const n = { green: 0, orange: 0, red: 0, grey: 0 };
  for (const s of sites) n[colourOf(s.view.dimensions.connectivity.score)]++;
  return n;
}
