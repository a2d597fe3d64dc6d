// What the invented sites take, for the mock server: the same each time.

import { invalidField, notFound } from "./check.mjs";

const COLUMNS = { series: "series", samples: "samplesPerSecond", bytes: "wireBytesPerSecond", pushes: "pushesPerSecond", refused: "refusedPerSecond", lines: "logLinesPerSecond", logBytes: "logBytesPerSecond", cpu: "cpuCores", memory: "memoryBytes" };
const NAMES = ["container_cpu_usage_seconds_total", "node_cpu_seconds_total", "kube_pod_container_status_waiting_reason", "container_memory_working_set_bytes", "node_filesystem_avail_bytes", "kube_pod_info", "up", "ALERTS"];

function useOf(s, i) {
  const series = 400 + ((i * 7919) % 1600);
  const lines = (i * 31) % 9;
  return {
    series, samplesPerSecond: series / 15, wireBytesPerSecond: (series / 15) * 12.7, rawBytesPerSecond: (series / 15) * 55, pushesPerSecond: 1 / 15, refusedPerSecond: i % 40 === 0 ? 0.02 : 0,
    logLinesPerSecond: lines, logBytesPerSecond: lines * 140, cpuCores: series * 2e-6 + lines * 6e-5, memoryBytes: series * 3400,
  };
}

const zero = () => Object.fromEntries([...Object.values(COLUMNS), "rawBytesPerSecond"].map((k) => [k, 0]));
const add = (a, b) => { for (const k of Object.keys(a)) a[k] += b[k]; return a; };

export class MockCost {
  constructor(fleet) {
    this.fleet = fleet;
    this.missing = [];
  }

  uses(tenants) {
    return [...this.fleet.sites.values()].map((s, i) => ({ s, use: useOf(s, i), regional: i % 2 === 0 ? "one" : "two" })).filter((x) => tenants.includes(x.s.tenant));
  }

  rows(by, tenants, q) {
    const sites = this.uses(tenants);
    const sum = (list, head) => list.reduce((r, x) => ({ ...r, sites: r.sites + 1, use: add(r.use, x.use), regionals: [...new Set([...r.regionals, x.regional])].sort() }), { ...head, sites: 0, regionals: [], use: zero() });
    if (by === "tenant") return tenants.map((tenant) => ({ ...sum(sites.filter((x) => x.s.tenant === tenant), { tenant }), ...(tenant === "acme" ? { seriesLimit: 500_000, moreSites: 97 } : {}) }));
    const views = this.fleet.virtualSites();
    const members = (tenant, ref) => sites.filter((x) => x.s.tenant === tenant && x.s.view.virtualSites.includes(ref));
    if (by === "virtualsite") return views.filter((v) => tenants.includes(v.tenant)).map((v) => sum(members(v.tenant, `${v.namespace}/${v.name}`), { tenant: v.tenant, namespace: v.namespace, name: v.name }));
    const ref = q.get("virtualSite");
    return sites.filter((x) => !ref || x.s.view.virtualSites.includes(ref)).map((x) => sum([x], { tenant: x.s.tenant, name: x.s.name }));
  }

  list(q, tenants, whole) {
    const by = q.get("by") || "site";
    const sort = q.get("sort") || "series";
    const text = q.get("q") ?? "";
    const label = (r) => (r.namespace ? `${r.namespace}/${r.name}` : (r.name ?? r.tenant));
    const rows = this.rows(by, tenants, q).filter((r) => label(r).includes(text));
    rows.sort((a, b) => (sort === "name" ? 0 : b.use[COLUMNS[sort]] - a.use[COLUMNS[sort]]) || (label(a) < label(b) ? -1 : 1));
    const limit = Number(q.get("limit") ?? 100);
    const from = Number(q.get("cursor") ?? 0);
    const out = { asOf: this.fleet.asOf, by, windowSeconds: 240, total: rows.length, sum: rows.reduce((u, r) => add(u, r.use), zero()), rows: rows.slice(from, from + limit), missingRegions: this.missing };
    if (whole && this.fleet.sites.size > 0) out.regionals = ["one", "two"].filter((n) => !this.missing.some((m) => m.region === n)).map((name) => this.room(name, tenants));
    if (from + limit < rows.length) out.nextCursor = String(from + limit);
    return { json: out };
  }

  room(name, tenants) {
    const mine = this.uses(tenants).filter((x) => x.regional === name);
    const process = mine.reduce((u, x) => add(u, x.use), zero());
    const of = (v) => v / Math.max(1, mine.length);
    const full = name === "two";
    return { name, region: name === "one" ? "eu-west" : "us-east", process, headroom: { sites: mine.length, moreSites: full ? 0 : 907, first: full ? "disk" : "memory", resources: [
      { name: "memory", used: process.memoryBytes + 2 ** 26, limit: 2 ** 33, perSite: of(process.memoryBytes), moreSites: 907 },
      { name: "cpu", used: 0.42, limit: 2, perSite: of(process.cpuCores), moreSites: 411_000 },
      { name: "disk", used: full ? 95 * 2 ** 30 : 2 ** 33, limit: 100 * 2 ** 30, perSite: 80 * 2 ** 20, moreSites: full ? 0 : 1049 },
      { name: "series", used: process.series, limit: 0, perSite: of(process.series), moreSites: null },
    ] } };
  }

  names(q, tenants) {
    const site = q.get("site");
    const hits = this.uses(tenants).filter((x) => x.s.name === site);
    if (!site) return invalidField("tenant", "is missing: names are of one tenant, or of one site");
    if (hits.length === 0) return notFound(`no site "${site}" that you may read`);
    if (hits.length > 1) return { problem: { type: "urn:muster:problem:conflict", title: "Conflict", status: 409, detail: `several tenants have a site "${site}"; say which with tenant=`, tenants: hits.map((x) => x.s.tenant) } };
    const { s, use } = hits[0];
    const names = NAMES.map((name, i) => ({ name, series: Math.round(use.series * 0.4 * 0.6 ** i), keptBy: name === "ALERTS" ? [] : name.startsWith("container_") ? [{ policy: "base", field: "spec.allow.names" }, { policy: "debug-containers", field: "spec.allow.patterns[0]", value: "container_.*" }] : [{ policy: "base", field: "spec.allow.names" }] }));
    return { json: { asOf: this.fleet.asOf, tenant: s.tenant, site: s.name, series: use.series, sampled: false, names, missingRegions: this.missing } };
  }
}
