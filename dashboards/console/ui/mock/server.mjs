// A mock of the console's HTTP API for developing and testing the page alone:
//   node mock/server.mjs [port]     (default 8099; log in with the token "mock")
// It serves dist/ too, with the real server's security headers. POST /mock/… drives it:
// break, heal {tenant?, site, fault?}, moment {tenant?, site, signal?, from, to, value} (of its charts; null: a gap), register {name}, pend {tenant, name, phase?} (a site of the inventory that waits, or is in another phase), fail {path, status, title?, detail?}, expire, drop, silence, stop, reset,
// log {message, severity?, site?, count?}, region {region, reason, late} (neither: it answers again), droptails, tenants {tenants}, missing {region, reason} (of the costs),
// rights {deploy, deletePods, readLogs}, novk8s, nohosts, say {text} (in the logs of pods that are followed), endlogs,
// refuse {site, detail} (changes of it in bulk), rolloutRights {control, approve, skipGates}, wave {verdict} (Pass or Fail, of the rollout that moves), norollouts,
// happened {events: [{time, kind, …}]} (in the timeline; times in ms), latelinks {regional} (its figures are missing; none: it answers again),
// provider {provider: {issuerURL, …, denies?}} (none: tokens only).
// MOCK_SITES, MOCK_TICK_MS and MOCK_STILL=1 (nothing changes by itself) shape it.

import { randomBytes } from "node:crypto";
import { createReadStream, existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { MockAlerts } from "./alerts.mjs";
import { MockTimeline } from "./timeline.mjs";
import { checkBody, checkParams, forbidden, invalidField, notFound, problem } from "./check.mjs";
import { MockCost } from "./cost.mjs";
import { MockFleet } from "./fleet.mjs";
import { MockHosts } from "./hosts.mjs";
import { MockInventory } from "./inventory.mjs";
import { MockLinks } from "./links.mjs";
import { MockLogs } from "./logs.mjs";
import { MockMetrics } from "./metrics.mjs";
import { MockPolicies } from "./policies.mjs";
import { MockRollouts } from "./rollouts.mjs";
import { MockRules } from "./rules.mjs";
import { MockViews } from "./views.mjs";
import { MockWorkloads } from "./vk8s.mjs";
import { within } from "./within.mjs";

const PORT = Number(process.argv[2] ?? process.env.PORT ?? 8099);
const TOKEN = process.env.TOKEN ?? "mock";
const SITES = Number(process.env.MOCK_SITES ?? 300);
const TICK = Number(process.env.MOCK_TICK_MS ?? 5000);
const STILL = process.env.MOCK_STILL === "1";
const DIST = resolve(process.env.DIST ?? fileURLToPath(new URL("../dist/", import.meta.url))) + "/";

let fleet;
let policies;
let inventory;
let links;
let hosts;
let views;
let rules;
let cost;
let logs;
let alerts;
let timeline, metrics;
let workloads;
let rollouts;
let tenants;
let registrations;
let failures;
let tick = 0;
let provider = null;
let silent = false;
let stopped = false;
const sessions = new Set();
const streams = new Set();
const answers = new Map(); // of the inventory since the last evaluation: with 10,000 sites they take the mock longer than the real one
const told = new Map(); // colour and phase of each site, as they were sent last

function reset() {
  lacking = {};
  told.clear();
  logs?.drop();
  fleet = new MockFleet(SITES);
  policies = new MockPolicies(fleet);
  views = new MockViews();
  rules = new MockRules();
  inventory = new MockInventory(fleet);
  links = new MockLinks(inventory);
  cost = new MockCost(fleet);
  logs = new MockLogs(fleet);
  alerts = new MockAlerts(fleet);
  timeline = new MockTimeline(fleet, alerts);
  hosts = new MockHosts(fleet);
  metrics = new MockMetrics(fleet, hosts);
  workloads?.end();
  workloads = new MockWorkloads(fleet);
  rollouts?.end();
  rollouts = new MockRollouts(fleet);
  tenants = ["acme", "globex"];
  failures = [];
  provider = null;
  silent = false;
  stopped = false;
  registrations = [];
  register("kiosk-berlin-17", { region: "eu-central" });
  register("charger-a9-042", {});
}

function register(name, labels, tenant = "acme") {
  registrations.push({
    name, tenant, labels: { fleet: "chargers", ...labels },
    systemLabels: { "muster.dev/key": "6a75fcf6b892db9146f8fcb5450e0d20047c1622deb17612312ca66893e042f", "muster.dev/tenant": "acme", "muster.dev/system-arch": "arm64", "muster.dev/system-os": "Debian-GNU-Linux-12-bookworm", "muster.dev/system-kernel": "6.1.0-28", "muster.dev/system-cpus": "4", "muster.dev/system-memory": "8Gi", "muster.dev/system-vendor": "Raspberry-Pi-Ltd" },
    token: "chargers-2026", createdAt: new Date(Date.now() - 7 * 60_000).toISOString(), publicKey: randomBytes(32).toString("hex"),
  });
}

function send(event, data, brief = data) {
  if (silent) return;
  for (const res of streams) res.write(`id: ${tick}\nevent: ${event}\ndata: ${JSON.stringify(res.brief ? brief : data)}\n\n`);
}

/** A SiteChange. */
function changeOf({ tenant, name, colour, phase, reasons }) {
  const at = `${tenant}/${name}`;
  const turned = told.get(at) !== colour + phase;
  told.set(at, colour + phase);
  return turned ? { tenant, name, colour, phase, ...(reasons[0] && { text: reasons[0].text }) } : { tenant, name };
}

function evaluate(drift) {
  answers.clear();
  if (stopped) return;
  tick++;
  const changed = fleet.evaluate(Date.now(), drift);
  if (changed.length > 0) {
    send("sites", { asOf: fleet.asOf, sites: changed }, { asOf: fleet.asOf, sites: changed.map(changeOf) });
    send("virtualsites", { asOf: fleet.asOf, virtualSites: fleet.virtualSites() });
  }
  send("tick", { asOf: fleet.asOf });
}

function drift() {
  const all = [...fleet.sites.values()];
  const s = all[Math.floor(Math.random() * all.length)];
  const kinds = ["crash-loop", "disk-full", "uplink-down", "memory-pressure", "cpu-throttled", "policy-denied"];
  if (s.faults.size > 0 && Math.random() < 0.7) s.faults.clear();
  else if (Math.random() < 0.5) s.faults.set(kinds[Math.floor(Math.random() * kinds.length)], Date.now());
}

function page(list, q, key) {
  const limit = Math.min(1000, Number(q.get("limit") ?? 100));
  const from = Number(q.get("cursor") ?? 0);
  const out = { asOf: fleet.asOf, total: list.length, [key]: list.slice(from, from + limit) };
  if (from + limit < list.length) out.nextCursor = String(from + limit);
  return out;
}

function findSite(name, q) {
  const hits = [...fleet.sites.values()].filter((s) => s.name === name && tenants.includes(s.tenant) && (!q.get("tenant") || s.tenant === q.get("tenant")));
  if (hits.length === 0) return notFound(`there is no site "${name}" in the tenants that you may read`);
  if (hits.length > 1) return problem(409, "Conflict", `several tenants have a site "${name}": name one with the parameter tenant`, { tenants: hits.map((s) => s.tenant) });
  return hits[0];
}

const USER = "ada@example.com";

/** The tenants that the parameter means, or a problem. */
function tenantsOf(q) {
  const t = q.get("tenant");
  if (t && !tenants.includes(t)) return forbidden(`you may not read tenant "${t}", or there is none`);
  return { names: t ? [t] : tenants };
}

function inTenants(q, f) {
  const t = tenantsOf(q);
  return t.problem ? t : f(t.names);
}

/** As inTenants, where there must be one. */
function inTenant(q, why, f) {
  return inTenants(q, (names) => (names.length === 1 ? f(names[0]) : invalidField("tenant", `is missing: ${why}, and you may choose from ${names.length}: ${names.join(", ")}`)));
}

const siteObject = (s) => ({ ...withHosts(fleet.object(s, Date.now()), s), maintenanceWindows: alerts.windowsOf(`site/${s.tenant}/${s.name}`) });

const withHosts = (o, s) => ({ ...o, conditions: [...o.conditions, ...hosts.condition(s)] });

function withVirtualSite(m, q, f) {
  return inTenant(q, "a virtual site belongs to one tenant", (tenant) => {
    const [namespace, name] = [decodeURIComponent(m[1]), decodeURIComponent(m[2])];
    if (!fleet.virtualSites().some((v) => v.tenant === tenant && v.namespace === namespace && v.name === name)) return notFound(`there is no virtual site "${namespace}/${name}"`);
    const key = `vs/${tenant}/${namespace}/${name}`;
    return f(key, () => ({ json: { tenant, namespace, name, maintenanceWindows: alerts.windowsOf(key) } }));
  });
}

/** acme comes near two of its quotas; nothing of globex is counted yet. */
function quotasOf(name) {
  const used = [...fleet.sites.values()].filter((s) => s.tenant === name).length;
  const use = (quota, n, limit) => ({ quota, used: n, limit });
  return { name, quotas: name !== "acme" ? [] : [use("sites", used, 0), use("series", 412_000, 500_000), use("logBytesPerDay", 21 * 2 ** 30, 20 * 2 ** 30), use("objects", 61, 2000), use("objectBytes", 180_000, 8 * 2 ** 20)] };
}

const windowName = (m, f) => (/^(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(m) ? f(m) : invalidField("window", `${JSON.stringify(m)}: want lower-case letters, digits and -`));

const RIGHTS = ["patch sites.muster.dev", "create silences.muster.dev", "delete silences.muster.dev", "create alertrules.muster.dev"];
/** Tenants in which the user lacks a right, by the right. */
let lacking = {};

const ROUTES = [
  ["GET", /^\/api\/v1\/rights$/, "none", () => ({ json: { rights: RIGHTS.map((right) => ({ right, all: !lacking[right], tenants: tenants.filter((t) => !lacking[right]?.includes(t)) })) } })],
  ["GET", /^\/api\/v1\/session$/, "none", () => ({ json: { user: USER, groups: ["sre"], tenants } })],
  ["GET", /^\/api\/v1\/tenants$/, "tenant", (_m, q) => inTenants(q, (names) => ({ json: { tenants: names.map(quotasOf) } }))],
  ["GET", /^\/api\/v1\/cost$/, "cost", (_m, q) => inTenants(q, (t) => cost.list(q, t, !q.get("tenant") && tenants.length > 1))],
  ["GET", /^\/api\/v1\/cost\/names$/, "costNames", (_m, q) => inTenants(q, (t) => cost.names(q, t))],
  ["GET", /^\/api\/v1\/sites\/([^/]+)\/workloads$/, "tenant", (m, q) => withSite(m[1], q, (s) => workloads.onSite(s.tenant, s.name))],
  ["GET", /^\/api\/v1\/virtualhosts$/, "tenant", (_m, q) => inTenants(q, (t) => hosts.list(t))],
  ["GET", /^\/api\/v1\/vk8s$/, "tenant", (_m, q) => inTenants(q, (t) => workloads.list(t))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)$/, "tenant", (m, q) => workloads.with(m, q, tenants, (v) => ({ json: { ...workloads.summary(v), rights: workloads.rights } }))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/kubeconfig$/, "tenant", (m, q, _b, _req, res) => workloads.with(m, q, tenants, (v) => workloads.kubeconfig(res, v))],
  ["POST", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/apply$/, "tenant", (m, q, body) => workloads.with(m, q, tenants, (v) => workloads.apply(v, body))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/workloads$/, "tenant", (m, q) => workloads.with(m, q, tenants, (v) => ({ json: { items: v.items.map((w) => workloads.view(v, w).view) } }))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/workloads\/([^/]+)\/([^/]+)$/, "tenant", (m, q) => workloads.withWorkload(m, q, tenants, (v, w) => workloads.detail(v, w))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/workloads\/([^/]+)\/([^/]+)\/object$/, "tenant", (m, q) => workloads.withWorkload(m, q, tenants, (v, w) => workloads.object(v, w))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/workloads\/([^/]+)\/([^/]+)\/pods$/, "pods", (m, q) => workloads.withWorkload(m, q, tenants, (v, w) => workloads.pods(v, w, q))],
  ["DELETE", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/pods\/([^/]+)$/, "tenant", (m, q) => workloads.with(m, q, tenants, (v) => workloads.deletePod(v, decodeURIComponent(m[3])))],
  ["GET", /^\/api\/v1\/vk8s\/([^/]+)\/([^/]+)\/pods\/([^/]+)\/log$/, "podLog", (m, q, _b, req, res) => workloads.with(m, q, tenants, (v) => workloads.log(req, res, v, decodeURIComponent(m[3]), q))],
  ["GET", /^\/api\/v1\/rollouts$/, "rollouts", (_m, q) => inTenants(q, (t) => rollouts.list(q, t))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/([^/]+)$/, "tenant", (m, q) => rollouts.with(m, q, tenants, (r) => ({ json: rollouts.detail(r) }))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/([^/]+)\/sites$/, "rolloutSites", (m, q) => rollouts.with(m, q, tenants, (r) => rollouts.sites(r, q))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/([^/]+)\/stream$/, "tenant", (m, q, _b, req, res) => rollouts.with(m, q, tenants, (r) => rollouts.stream(req, res, r))],
  ["POST", /^\/api\/v1\/rollouts\/([^/]+)\/([^/]+)\/(pause|resume|promote|abort|retry)$/, "tenant", (m, q, body) => rollouts.with(m, q, tenants, (r) => rollouts.act(r, m[3], body, USER))],
  ["GET", /^\/api\/v1\/health\/sites$/, "sites", (_m, q) => ({ json: page([...fleet.sites.values()].map((s) => s.view), q, "sites") })],
  ["GET", /^\/api\/v1\/health\/sites\/([^/]+)$/, "tenant", (m, q) => withSite(m[1], q, (s) => ({ json: fleet.detail(s) }))],
  ["GET", /^\/api\/v1\/health\/sites\/([^/]+)\/explain$/, "explain", (m, q) => withSite(m[1], q, (s) => (q.get("shadow") ? (s.shadow ? { json: { ...fleet.explanation(s), policy: s.shadow.policy, shadow: true } } : notFound(`site "${s.name}" has no score to explain: no policy in shadow selects it`)) : s.phase === "Approved" ? notFound(`site "${s.name}" has no score to explain: it is Approved`) : { json: fleet.explanation(s) }))],
  ["GET", /^\/api\/v1\/health\/virtualsites$/, "paged", (_m, q) => ({ json: page(fleet.virtualSites(), q, "virtualSites") })],
  ["GET", /^\/api\/v1\/health\/policies$/, "none", () => ({ json: { policies: fleet.policies() } })],
  ["GET", /^\/api\/v1\/health\/policies\/([^/]+)$/, "tenant", (m, q) => inTenants(q, (t) => policies.detail(m[1], t))],
  ["POST", /^\/api\/v1\/health\/try$/, "triedNow", (_m, q, body) => inTenant(q, "a health policy belongs to one tenant", (t) => policies.try(t, body, q.get("patience") ? logs.late : new Set()))],
  ["POST", /^\/api\/v1\/health\/replay$/, "replay", (_m, q, body) => inTenant(q, "a health policy belongs to one tenant", (t) => policies.replay(t, body, q.get("cursor") ?? undefined))],
  ["GET", /^\/api\/v1\/sites$/, "inventory", (_m, q, _b, _req, res) => inTenants(q, (t) => inventory.list(q, t, res))],
  ["GET", /^\/api\/v1\/site-map$/, "siteMap", (_m, q) => inTenants(q, (t) => inventory.map(q, t))],
  ["GET", /^\/api\/v1\/site-distributions$/, "siteDistributions", (_m, q) => inTenants(q, (t) => inventory.distributions(q, t))],
  ["GET", /^\/api\/v1\/links$/, "links", (_m, q, _b, _req, res) => inTenants(q, (t) => links.list(q, t, res))],
  ["GET", /^\/api\/v1\/site-fields$/, "tenant", (_m, q) => inTenants(q, (t) => inventory.fields(t))],
  ["GET", /^\/api\/v1\/views$/, "tenant", (_m, q) => inTenants(q, (t) => views.list(t))],
  ["POST", /^\/api\/v1\/alertrules$/, "tenant", (_m, q, body) => inTenant(q, "alert rules belong to one tenant", (t) => rules.make(t, body, USER, lacking["create alertrules.muster.dev"]?.includes(t)))],
  ["GET", /^\/api\/v1\/alertrules\/([^/]+)$/, "tenant", (m, q) => inTenant(q, "alert rules belong to one tenant", (t) => rules.get(t, decodeURIComponent(m[1])))],
  ["PUT", /^\/api\/v1\/views\/([^/]+)$/, "savedView", (m, q, body) => inTenant(q, "a view belongs to one tenant", (t) => views.put(decodeURIComponent(m[1]), q, t, body))],
  ["DELETE", /^\/api\/v1\/views\/([^/]+)$/, "view", (m, q) => inTenant(q, "a view belongs to one tenant", (t) => views.drop(decodeURIComponent(m[1]), q, t))],
  ["POST", /^\/api\/v1\/sites:change$/, "none", (_m, _q, body) => {
    const r = inventory.change(body, tenants);
    registrations = registrations.filter((x) => (fleet.sites.get(`${x.tenant}/${x.name}`)?.phase ?? "Pending") === "Pending");
    evaluate(false);
    return r;
  }],
  ["GET", /^\/api\/v1\/sites\/([^/]+)$/, "tenant", (m, q) => withSite(m[1], q, (s) => ({ json: siteObject(s) }))],
  ["PUT", /^\/api\/v1\/sites\/([^/]+)\/maintenance\/windows\/([^/]+)$/, "tenant", (m, q, body) => windowName(m[2], (w) => withSite(m[1], q, (s) => alerts.putWindow(`site/${s.tenant}/${s.name}`, w, body) ?? { json: siteObject(s) }))],
  ["DELETE", /^\/api\/v1\/sites\/([^/]+)\/maintenance\/windows\/([^/]+)$/, "tenant", (m, q) => windowName(m[2], (w) => withSite(m[1], q, (s) => alerts.dropWindow(`site/${s.tenant}/${s.name}`, w)))],
  ["GET", /^\/api\/v1\/virtualsites\/([^/]+)\/([^/]+)\/maintenance\/windows$/, "tenant", (m, q) => withVirtualSite(m, q, (_key, view) => view())],
  ["PUT", /^\/api\/v1\/virtualsites\/([^/]+)\/([^/]+)\/maintenance\/windows\/([^/]+)$/, "tenant", (m, q, body) => windowName(m[3], (w) => withVirtualSite(m, q, (key, view) => alerts.putWindow(key, w, body) ?? view()))],
  ["DELETE", /^\/api\/v1\/virtualsites\/([^/]+)\/([^/]+)\/maintenance\/windows\/([^/]+)$/, "tenant", (m, q) => windowName(m[3], (w) => withVirtualSite(m, q, (key) => alerts.dropWindow(key, w)))],
  ["GET", /^\/api\/v1\/logs\/search$/, "logs", (_m, q) => inTenant(q, "logs are searched in one tenant", (t) => logs.search(q, t))],
  ["GET", /^\/api\/v1\/logs\/tail$/, "tail", (_m, q, _b, req, res) => inTenant(q, "logs are searched in one tenant", (t) => logs.tail(req, res, q, t))],
  ["GET", /^\/api\/v1\/timeline$/, "timeline", (_m, q) => inTenants(q, (t) => timeline.list(q, t))],
  ["GET", /^\/api\/v1\/alerts$/, "alerts", (_m, q) => inTenants(q, (t) => alerts.list(q, t))],
  ["GET", /^\/api\/v1\/alerts\/groups$/, "alertGroups", (_m, q) => inTenants(q, (t) => alerts.groups(q, t))],
  ["GET", /^\/api\/v1\/alerts\/notifications$/, "loudness", (_m, q) => inTenants(q, (t) => alerts.loudness(t))],
  ["GET", /^\/api\/v1\/alerts\/state$/, "alertScope", (_m, q) => inTenants(q, (t) => alerts.state(q, t))],
  ["GET", /^\/api\/v1\/runbooks\/(\w+)$/, "none", (m) => runbook(m[1])],
  ["GET", /^\/api\/v1\/alerts\/([^/]+)$/, "tenant", (m, q) => inTenants(q, (t) => alerts.detail(m[1], t))],
  ["GET", /^\/api\/v1\/silences$/, "silences", (_m, q) => inTenants(q, (t) => alerts.listSilences(q, t))],
  ["POST", /^\/api\/v1\/silences$/, "tenant", (_m, q, body) => inTenants(q, (t) => alerts.silence(t, body, USER))],
  ["DELETE", /^\/api\/v1\/silences\/([^/]+)$/, "tenant", (m, q) => inTenants(q, (t) => alerts.expire(m[1], t))],
  ["PUT", /^\/api\/v1\/sites\/([^/]+)\/maintenance$/, "tenant", (m, q, body) => withSite(m[1], q, (s) => {
    const bad = checkBody(body, ["reason", "until"]);
    if (bad) return bad;
    if (!body.reason) return invalidField("reason", "is missing");
    s.maintenance = { reason: body.reason, until: body.until ?? null };
    evaluate(false);
    return { json: siteObject(s) };
  })],
  ["DELETE", /^\/api\/v1\/sites\/([^/]+)\/maintenance$/, "tenant", (m, q) => withSite(m[1], q, (s) => {
    s.maintenance = null;
    evaluate(false);
    return { status: 204 };
  })],
  ["POST", /^\/api\/v1\/sites\/([^/]+)\/reset$/, "tenant", (m, q, body) => withSite(m[1], q, (s) => fleet.askReset(s, body, Date.now()) ?? { json: siteObject(s) })],
  ["DELETE", /^\/api\/v1\/sites\/([^/]+)\/reset$/, "tenant", (m, q) => withSite(m[1], q, (s) => fleet.cancelReset(s, Date.now()))],
  ["GET", /^\/api\/v1\/registrations$/, "paged", () => ({ json: { registrations } })],
  ["POST", /^\/api\/v1\/registrations\/([^/]+)\/(approve|reject)$/, "tenant", (m, _q, body) => decide(m[1], m[2], body)],
  ["GET", /^\/api\/v1\/metrics\/query_range$/, "range", (_m, asked) => within(asked, (q) => (/site=~"|dimension_score/.test(q.get("query") ?? "") ? range(q) : inTenant(q, "a query is about one tenant", (t) => metrics.range(q, t))))],
  ["GET", /^\/api\/v1\/metrics\/query$/, "instant", (_m, q) => inTenant(q, "a query is about one tenant", (t) => metrics.range(q, t, true))],
  ["GET", /^\/api\/v1\/metrics\/names$/, "names", (_m, q) => inTenant(q, "a query is about one tenant", (t) => metrics.names(q, t))],
  ["GET", /^\/api\/v1\/metrics\/condition$/, "condition", (_m, q) => metrics.condition(q)],
];

/** As the console has them. */
function runbook(alert) {
  const file = fileURLToPath(new URL(`../../../../internal/runbooks/texts/${alert}.md`, import.meta.url));
  return existsSync(file) ? { json: { alert, markdown: readFileSync(file, "utf8") } } : notFound(`there is no runbook for "${alert}": those of your own rules are where their runbook_url says`);
}

function withSite(name, q, f) {
  const s = findSite(decodeURIComponent(name), q);
  return "problem" in s ? s : f(s);
}

function decide(name, what, body) {
  const i = registrations.findIndex((r) => r.name === name);
  if (i < 0) return notFound(`there is no registration "${name}"`);
  if (what === "reject") {
    registrations.splice(i, 1);
    return { status: 204 };
  }
  if (body?.publicKey && body.publicKey !== registrations[i].publicKey) return problem(409, "Conflict", `site ${name} has registered with another key since you looked; look again`);
  const [r] = registrations.splice(i, 1);
  const region = body?.labels?.region ?? r.labels.region ?? "";
  const s = fleet.add({ tenant: r.tenant, name, city: body?.place?.address ?? "", region, lat: body?.place?.latitude ?? 0, lon: body?.place?.longitude ?? 0, year: 2024 }, Date.now());
  if (!body?.place) s.place = null;
  s.phase = "Approved";
  evaluate(false);
  return { json: siteObject(s) };
}

function range(q) {
  const query = q.get("query") ?? "";
  const any = /site=~"([^"]+)"/.exec(query)?.[1];
  if (any) return mean(q, query, any.replaceAll("\\", "").split("|"));
  const name = /site="([^"]+)"/.exec(query)?.[1];
  const [start, end, step] = ["start", "end", "step"].map((k) => Number(q.get(k)));
  const s = [...fleet.sites.values()].find((x) => x.name === name && (!q.get("tenant") || x.tenant === q.get("tenant")));
  const result = [];
  if (s && query.includes("muster_site_health_score")) result.push({ metric: {}, values: fleet.history(s, "", start, end, step) });
  else if (s && query.includes("muster_site_health_dimension_score")) {
    for (const d of ["connectivity", "reliability", "security", "performance"]) result.push({ metric: { dimension: d }, values: fleet.history(s, d, start, end, step) });
  }
  return { json: { status: "success", data: { resultType: "matrix", result: result.filter((r) => r.values.length > 0) } } };
}

/** The mean of a score over several sites. */
function mean(q, query, names) {
  const [start, end, step] = ["start", "end", "step"].map((k) => Number(q.get(k)));
  const dimension = /dimension="(\w+)"/.exec(query)?.[1] ?? "";
  const sums = new Map();
  for (const s of fleet.sites.values()) {
    if (!names.includes(s.name) || s.tenant !== q.get("tenant")) continue;
    for (const [t, v] of fleet.history(s, dimension, start, end, step)) {
      const [n, sum] = sums.get(t) ?? [0, 0];
      sums.set(t, [n + 1, sum + Number(v)]);
    }
  }
  const values = [...sums].sort((a, b) => a[0] - b[0]).map(([t, [n, sum]]) => [t, String(sum / n)]);
  return { json: { status: "success", data: { resultType: "matrix", result: values.length > 0 ? [{ metric: {}, values }] : [] } } };
}

const CONTROLS = {
  break: (b) => each(b, (s) => s.faults.set(b.fault ?? "uplink-down", Date.now())),
  moment: (b) => each(b, (s) => (s.moments = [...(s.moments ?? []), b])),
  heal: (b) => each(b, (s) => s.faults.clear()),
  shadow: (b) => each(b, (s) => (s.shadow = { policy: "next", score: 61.3, colour: "orange", reason: "the fullest filesystem is 86% full" })),
  blind: (b) => each(b, (s) => (s.failing = b.signal)),
  register: (b) => register(b.name, b.labels ?? {}),
  pend: (b) => { fleet.add({ tenant: b.tenant, name: b.name, city: "", region: "", lat: 0, lon: 0, year: 2024 }, Date.now()).phase = b.phase ?? "Pending"; if (!b.phase) register(b.name, {}, b.tenant); evaluate(false); },
  fail: (b) => failures.push({ path: b.path, method: b.method, status: b.status ?? 500, title: b.title ?? "Internal Server Error", detail: b.detail ?? "the health engine can't be reached; it may be starting" }),
  unfail: () => (failures = []),
  notimeline: () => { timeline.missing = true; },
  latelinks: (b) => { links.late = b.regional ?? ""; },
  happened: (b) => { for (const e of b.events) timeline.add(e); timeline.sort(); },
  empty: () => { fleet.sites.clear(); registrations = []; fleet.evaluate(Date.now()); logs = new MockLogs(fleet); alerts = new MockAlerts(fleet); timeline = new MockTimeline(fleet, alerts); workloads = new MockWorkloads(fleet); rollouts = new MockRollouts(fleet); },
  expire: () => { sessions.clear(); for (const r of streams) r.destroy(); },
  drop: () => { for (const r of streams) r.destroy(); },
  silence: () => (silent = true),
  stop: () => (stopped = true),
  log: (b) => { for (let i = 0; i < (b.count ?? 1); i++) logs.add({ ...b, ...(b.message ? { message: b.message.replace("{i}", i + 1) } : {}) }); },
  region: (b) => logs.setRegion(b.region, b.reason, b.late),
  droptails: () => logs.drop(),
  tenants: (b) => (tenants = b.tenants),
  refuse: (b) => inventory.refused.set(b.site, b.detail),
  missing: (b) => (cost.missing = [{ region: b.region, reason: b.reason }]),
  rights: (b) => Object.assign(workloads.rights, b),
  nohosts: () => (hosts.hosts = []),
  novk8s: () => (workloads.virtual = []),
  rolloutRights: (b) => Object.assign(rollouts.rights, b),
  wave: (b) => rollouts.wave(b.verdict),
  norollouts: () => (rollouts.all = []),
  say: (b) => workloads.say(b.text),
  endlogs: () => workloads.end(),
  lacking: (b) => (lacking = b),
  provider: (b) => (provider = b.provider ?? null),
  reset: () => { reset(); for (const r of streams) r.destroy(); },
};

function each(b, f) {
  for (const s of fleet.sites.values()) if (s.name === b.site && (!b.tenant || s.tenant === b.tenant)) f(s);
  evaluate(false);
}

function answer(res, r) {
  const body = r.problem ?? r.json;
  const status = r.problem?.status ?? r.status ?? 200;
  res.writeHead(status, body === undefined ? { "Cache-Control": "no-store" } : { "Content-Type": r.problem ? "application/problem+json" : "application/json", "Cache-Control": "no-store" });
  res.end(body === undefined ? undefined : JSON.stringify(body));
}

async function bodyOf(req) {
  let text = "";
  for await (const chunk of req) text += chunk;
  return text ? JSON.parse(text) : undefined;
}

const cookieOf = (req) => /(?:^|; )muster_session=([^;]+)/.exec(req.headers.cookie ?? "")?.[1] ?? "";

function openSession(res) {
  const id = randomBytes(16).toString("hex");
  sessions.add(id);
  res.setHeader("Set-Cookie", `muster_session=${id}; Path=/; HttpOnly; SameSite=Strict`);
}

async function handleAPI(req, res, url) {
  const body = ["POST", "PUT"].includes(req.method) ? await bodyOf(req) : undefined;
  if (url.pathname === "/api/v1/login") return answer(res, { json: { oidc: provider } });
  if (url.pathname === "/api/v1/session/oidc" && provider) {
    // As if the provider had let the user in.
    const back = url.searchParams.get("return") ?? "/";
    if (!provider.denies) openSession(res);
    res.writeHead(303, { Location: provider.denies ? "/#login=denied" : back });
    return res.end();
  }
  if (url.pathname === "/api/v1/session" && req.method === "POST") {
    if (body?.token !== TOKEN) return answer(res, problem(401, "Unauthorized", "the token is not known to the control plane, or has expired"));
    openSession(res);
    return answer(res, { status: 204 });
  }
  if (url.pathname === "/api/v1/session" && req.method === "DELETE") {
    sessions.delete(cookieOf(req));
    return answer(res, { status: 204 });
  }
  if (!sessions.has(cookieOf(req))) return answer(res, problem(401, "Unauthorized", "log in first"));
  const failing = failures.find((f) => url.pathname.startsWith(f.path) && (!f.method || f.method === req.method));
  if (failing) return answer(res, problem(failing.status, failing.title, failing.detail, { instance: "urn:muster:incident:mock" }));
  if (url.pathname === "/api/v1/health/stream") return stream(req, res, url.searchParams.get("brief") === "true");
  for (const [method, path, params, f] of ROUTES) {
    const m = path.exec(url.pathname);
    if (!m || method !== req.method) continue;
    const bad = checkParams(url.searchParams, params);
    if (bad) return answer(res, bad);
    if (body !== undefined && !/^application\/json\b/.test(req.headers["content-type"] ?? "")) return answer(res, problem(415, "Unsupported Media Type", "want application/json"));
    if (method !== "GET") answers.clear();
    const r = answers.get(url.href) ?? f(m, url.searchParams, body, req, res);
    if (STILL && method === "GET" && r?.json && /^\/api\/v1\/site(s|-map|-distributions|-fields)$/.test(url.pathname)) answers.set(url.href, r);
    return r === undefined ? undefined : answer(res, r); // undefined: it streams
  }
  return answer(res, notFound(`there is no ${url.pathname}; GET /api/v1/openapi.json lists what there is`));
}

function stream(req, res, brief) {
  res.brief = brief;
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  res.write(": hello\n\n");
  streams.add(res);
  req.on("close", () => streams.delete(res));
}

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json" };
const CSP =
  "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

function handleStatic(res, url) {
  const name = normalize(url.pathname).replace(/^\/+/, "");
  let file = join(DIST, name);
  if (!file.startsWith(DIST) || !name || !existsSync(file) || !statSync(file).isFile()) {
    if (name.startsWith("assets/")) return answer(res, notFound(`there is no ${url.pathname}`));
    file = join(DIST, "index.html");
  }
  if (!existsSync(file)) return answer(res, problem(503, "Service Unavailable", "dist/ is missing; run npm run build"));
  res.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream", "Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer" });
  createReadStream(file).pipe(res);
}

reset();
setInterval(() => {
  if (!STILL) {
    drift();
    for (let i = 0; i < 12; i++) setTimeout(() => logs.add(), (i * TICK) / 12);
  }
  evaluate(!STILL);
}, TICK);
setInterval(() => {
  for (const res of streams) res.write(": keep-alive\n\n");
  for (const t of logs.tails) t.res.write(": alive\n\n");
}, 15_000);

const server = createServer((req, res) => {
  const url = new URL(req.url, "http://mock");
  const control = /^\/mock\/(\w+)$/.exec(url.pathname)?.[1];
  const work = control && req.method === "POST" ? bodyOf(req).then((b) => { answers.clear(); CONTROLS[control]?.(b ?? {}); answer(res, { status: 204 }); }) : url.pathname.startsWith("/api/") ? handleAPI(req, res, url) : handleStatic(res, url);
  Promise.resolve(work).catch((e) => answer(res, problem(500, "Internal Server Error", String(e))));
}).listen(PORT, "127.0.0.1", () => console.log(`mock console on http://127.0.0.1:${server.address().port}/#token=${TOKEN}`));
