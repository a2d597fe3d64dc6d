// Invented metrics for the mock: the readings behind its signals and scores, and a few
// counters of every site, in as much PromQL as the pages ask.

import { metricOf, momentAt, random, rough } from "./fleet.mjs";
import { linkSeries } from "./links.mjs";

const RAW = { node_load1: 1.2, node_memory_MemAvailable_bytes: 3.1e9, node_filesystem_avail_bytes: 41e9, node_cpu_seconds_total: 0.4, up: 1, muster_site_connected: 1, muster_collector_series: 1840, muster_site_health_score: 90 };
const LABELS = { job: ["kubelet", "node-exporter", "kube-state-metrics"], node: ["node-1", "node-2"], mode: ["idle", "user", "system"] };
const FEW = 12;

const error = (status, text) => ({ status, json: { status: "error", errorType: "bad_data", error: text } });
const answer = (resultType, result) => ({ json: { status: "success", data: { resultType, result } } });

export class MockMetrics {
  constructor(fleet, hosts) {
    this.fleet = fleet;
    this.hosts = hosts;
  }

  names(q, tenant) {
    const label = q.get("label") ?? "";
    const sites = [...this.fleet.sites.values()].filter((s) => s.tenant === tenant);
    const all = !label ? ["__name__", "site", "tenant", "region", ...Object.keys(LABELS)]
      : label === "__name__" ? [...Object.keys(RAW), "muster_site_health_dimension_score", ...(sites[0]?.signals.map((g) => metricOf(g.name)) ?? [])]
      : label === "site" ? sites.map((s) => s.name) : label === "tenant" ? [tenant] : label === "region" ? [...new Set(sites.map((s) => s.region))] : (LABELS[label] ?? []);
    const text = (q.get("q") ?? "").toLowerCase();
    const fit = all.filter((n) => n.toLowerCase().includes(text)).sort((a, b) => b.toLowerCase().startsWith(text) - a.toLowerCase().startsWith(text) || (a < b ? -1 : 1));
    const limit = Number(q.get("limit") || 100);
    return { json: { names: fit.slice(0, limit), more: fit.length > limit } };
  }

  condition(q) {
    const query = q.get("query") ?? "";
    const m = /^(.*?)\s(>=|<=|==|!=|>|<)\s(-?[\d.]+)$/s.exec(query);
    const site = q.get("site");
    const value = (m ? m[1] : query).replace(/\b(mock_[a-z_]+|[a-z]+_[a-z_]+)(\{([^}]*)\})?/g, (all, name, _b, inside) => (site && /^(mock|node|muster|up|kube)/.test(name) ? `${name}{${inside ? `${inside},` : ""}site="${site}"}` : all));
    return { json: { query, value, bounds: m ? [{ op: m[2], value: Number(m[3]) }] : [] } };
  }

  /** What the scores of some members come to. */
  trend(tenant, virtual, start, end, step) {
    const members = [...this.fleet.sites.values()].filter((s) => s.tenant === tenant && s.view.virtualSites.includes(virtual)).slice(0, 5 * FEW);
    const at = new Map();
    for (const s of members) for (const [t, v] of this.fleet.history(s, "", start, end, step)) at.set(t, [...(at.get(t) ?? []), Number(v)]);
    const rows = [...at].sort((a, b) => a[0] - b[0]).map(([t, v]) => [t, v.sort((a, b) => a - b)]);
    return answer("matrix", rows.length === 0 ? [] : Object.entries(STATS).map(([stat, of]) => ({ metric: { stat, tenant, virtual_site: virtual }, values: rows.map(([t, v]) => [t, String(of(v))]) })));
  }

  /** An expression over a range; with start = end, at one moment. */
  range(q, tenant, instant) {
    const query = q.get("query") ?? "";
    if (query.split("(").length !== query.split(")").length) return error(400, `1:${query.length}: parse error: unclosed left parenthesis`);
    const [start, end, step] = instant ? [Number(q.get("time") || Date.now() / 1000), Number(q.get("time") || Date.now() / 1000), 60] : ["start", "end", "step"].map((k) => Number(q.get(k)));
    if (instant && query.includes("muster_agent_host_")) return answer("vector", this.hosts.series(query, tenant).map(([metric, v]) => ({ metric, value: [start, String(v)] })));
    const virtual = /^muster_virtual_site_health_score\{virtual_site="([^"]+)"\}$/.exec(query)?.[1];
    if (virtual) return this.trend(tenant, virtual, start, end, step);
    const name = /site="([^"]+)"/.exec(query)?.[1];
    const sites = [...this.fleet.sites.values()].filter((s) => s.tenant === tenant && (!name || s.name === name));
    const series = [];
    const signal = /mock_([a-z_]+)/.exec(query)?.[1].replaceAll("_", "-");
    const raw = Object.keys(RAW).find((m) => query.includes(m));
    for (const s of sites.slice(0, FEW)) {
      if (/muster_agent_link_|traefik_service_/.test(query)) {
        for (const [metric, level] of linkSeries(query, s)) series.push({ metric, values: eventful(s, "link", wave(s.name + JSON.stringify(metric), level, start, end, step)) });
      } else if (signal) {
        const g = s.signals.find((x) => x.name === signal);
        if (g?.known) series.push({ metric: { tenant, site: s.name }, values: readings(s, g, start, end, step) });
      } else if (raw === "muster_site_health_score") series.push({ metric: { site: s.name }, values: this.fleet.history(s, "", start, end, step) });
      else if (raw) series.push({ metric: query === raw ? { __name__: raw, tenant, site: s.name, job: "node-exporter" } : { site: s.name }, values: wave(s.name + raw, RAW[raw], start, end, step) });
    }
    const full = series.filter((x) => x.values.length > 0);
    return instant ? answer("vector", full.map((x) => ({ metric: x.metric, value: x.values.at(-1) }))) : answer("matrix", full);
  }
}

const STATS = { mean: (v) => v.reduce((n, x) => n + x, 0) / v.length, p10: (v) => v[Math.floor(v.length / 10)], worst: (v) => v[0] };

const seedOf = (text) => [...text].reduce((n, c) => (n * 31 + c.charCodeAt(0)) | 0, 7) >>> 0;

function wave(name, level, start, end, step) {
  const rand = random(seedOf(name));
  const [phase, depth] = [rand() * 6, level === 1 ? 0 : 0.1 + rand() * 0.2];
  const out = [];
  for (let t = start; t <= end + 1e-6; t += step) out.push([t, String(level * (1 + depth * Math.sin(t / 9000 + phase)))]);
  return out;
}

/** Values with the moments of a site (POST /mock/moment) in them. */
const eventful = (site, signal, values) =>
  values.flatMap(([t, v]) => {
    const moment = momentAt(site, signal, t);
    return moment?.value === null ? [] : [[t, moment ? String(moment.value) : v]];
  });

/** A signal's readings: as good as ever until the fault, then what it is now. */
function readings(site, g, start, end, step) {
  const since = site.faults.size > 0 ? Math.max(...site.faults.values()) / 1000 : Infinity;
  const better = g.score < 1 ? g.good + (g.good - g.bad) * 0.15 : g.value;
  const rand = random(seedOf(site.name + g.name));
  const seed = rand();
  const spread = Math.abs(g.good - g.bad) * 0.08;
  const out = [];
  for (let t = start; t <= end + 1e-6; t += step) {
    const moment = momentAt(site, g.name, t);
    if (moment?.value === null) continue;
    const base = moment?.value ?? (t < since ? better : g.value);
    out.push([t, String(base === 0 ? 0 : Math.max(0, base + (rough(seed, t) - 0.5) * spread))]);
  }
  return out;
}
