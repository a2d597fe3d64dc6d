// A mock of the console's HTTP API for developing and testing the page alone:
//   node mock/server.mjs [port]     (default 8099; log in with the token "mock")
// It serves dist/ too, with the real server's security headers. POST /mock/… drives it:
// break, heal {tenant?, site, fault?}, register {name}, fail {path, status}, expire, drop, silence, stop, reset.
// MOCK_SITES, MOCK_TICK_MS and MOCK_STILL=1 (nothing changes by itself) shape it.

import { randomBytes } from "node:crypto";
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { MockFleet } from "./fleet.mjs";

const PORT = Number(process.argv[2] ?? process.env.PORT ?? 8099);
const TOKEN = process.env.TOKEN ?? "mock";
const SITES = Number(process.env.MOCK_SITES ?? 300);
const TICK = Number(process.env.MOCK_TICK_MS ?? 5000);
const STILL = process.env.MOCK_STILL === "1";
const DIST = resolve(process.env.DIST ?? fileURLToPath(new URL("../dist/", import.meta.url))) + "/";

let fleet;
let registrations;
let failures;
let tick = 0;
let silent = false;
let stopped = false;
const sessions = new Set();
const streams = new Set();

function reset() {
  fleet = new MockFleet(SITES);
  failures = [];
  silent = false;
  stopped = false;
  registrations = [];
  register("kiosk-berlin-17", { region: "eu-central" });
  register("charger-a9-042", {});
}

function register(name, labels) {
  registrations.push({
    name, tenant: "acme", labels: { fleet: "chargers", ...labels },
    systemLabels: { "muster.dev/key": "6a75fcf6b892db9146f8fcb5450e0d20047c1622deb17612312ca66893e042f", "muster.dev/tenant": "acme", "muster.dev/system-arch": "arm64", "muster.dev/system-os": "Debian-GNU-Linux-12-bookworm", "muster.dev/system-kernel": "6.1.0-28", "muster.dev/system-cpus": "4", "muster.dev/system-memory": "8Gi", "muster.dev/system-vendor": "Raspberry-Pi-Ltd" },
    token: "chargers-2026", createdAt: new Date(Date.now() - 7 * 60_000).toISOString(), publicKey: randomBytes(32).toString("hex"),
  });
}

const problem = (status, title, detail, extra = {}) => ({ problem: { type: `urn:muster:problem:${title.toLowerCase().replaceAll(" ", "-")}`, title, status, detail, ...extra } });
const notFound = (d) => problem(404, "Not Found", d);

function send(event, data) {
  if (silent) return;
  for (const res of streams) res.write(`id: ${tick}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}

function evaluate(drift) {
  if (stopped) return;
  tick++;
  const changed = fleet.evaluate(Date.now(), drift);
  if (changed.length > 0) {
    send("sites", { asOf: fleet.asOf, sites: changed });
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
  const hits = [...fleet.sites.values()].filter((s) => s.name === name && (!q.get("tenant") || s.tenant === q.get("tenant")));
  if (hits.length === 0) return notFound(`there is no site "${name}" in the tenants that you may read`);
  if (hits.length > 1) return problem(409, "Conflict", `several tenants have a site "${name}": name one with the parameter tenant`, { tenants: hits.map((s) => s.tenant) });
  return hits[0];
}

const PARAMS = {
  sites: ["tenant", "virtualSite", "region", "colour", "phase", "q", "sort", "limit", "cursor"], paged: ["tenant", "limit", "cursor"], tenant: ["tenant"],
  vs: ["tenant", "namespace"], range: ["tenant", "query", "start", "end", "step", "timeout"], none: [],
};

const ROUTES = [
  ["GET", /^\/api\/v1\/session$/, "none", () => ({ json: { user: "ada@example.com", groups: ["sre"], tenants: ["acme", "globex"] } })],
  ["GET", /^\/api\/v1\/health\/sites$/, "sites", (_m, q) => ({ json: page([...fleet.sites.values()].map((s) => s.view), q, "sites") })],
  ["GET", /^\/api\/v1\/health\/sites\/([^/]+)$/, "tenant", (m, q) => withSite(m[1], q, (s) => ({ json: fleet.detail(s) }))],
  ["GET", /^\/api\/v1\/health\/virtualsites$/, "paged", (_m, q) => ({ json: page(fleet.virtualSites(), q, "virtualSites") })],
  ["GET", /^\/api\/v1\/health\/policies$/, "none", () => ({ json: { policies: fleet.policies() } })],
  ["GET", /^\/api\/v1\/sites\/([^/]+)$/, "tenant", (m, q) => withSite(m[1], q, (s) => ({ json: fleet.object(s, Date.now()) }))],
  ["PUT", /^\/api\/v1\/sites\/([^/]+)\/maintenance$/, "tenant", (m, q, body) => withSite(m[1], q, (s) => {
    if (!body?.reason) return problem(400, "Bad Request", "reason: is missing");
    s.maintenance = { reason: body.reason, until: body.until ?? null };
    evaluate(false);
    return { json: fleet.object(s, Date.now()) };
  })],
  ["DELETE", /^\/api\/v1\/sites\/([^/]+)\/maintenance$/, "tenant", (m, q) => withSite(m[1], q, (s) => {
    s.maintenance = null;
    evaluate(false);
    return { status: 204 };
  })],
  ["GET", /^\/api\/v1\/registrations$/, "paged", () => ({ json: { registrations } })],
  ["POST", /^\/api\/v1\/registrations\/([^/]+)\/(approve|reject)$/, "tenant", (m, _q, body) => decide(m[1], m[2], body)],
  ["GET", /^\/api\/v1\/metrics\/query_range$/, "range", (_m, q) => range(q)],
];

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
  return { json: fleet.object(s, Date.now()) };
}

function range(q) {
  const query = q.get("query") ?? "";
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

const CONTROLS = {
  break: (b) => each(b, (s) => s.faults.set(b.fault ?? "uplink-down", Date.now())),
  heal: (b) => each(b, (s) => s.faults.clear()),
  blind: (b) => each(b, (s) => (s.failing = b.signal)),
  register: (b) => register(b.name, b.labels ?? {}),
  fail: (b) => failures.push({ path: b.path, status: b.status ?? 500 }),
  unfail: () => (failures = []),
  empty: () => { fleet.sites.clear(); registrations = []; fleet.evaluate(Date.now()); },
  expire: () => { sessions.clear(); for (const r of streams) r.destroy(); },
  drop: () => { for (const r of streams) r.destroy(); },
  silence: () => (silent = true),
  stop: () => (stopped = true),
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

async function handleAPI(req, res, url) {
  const body = ["POST", "PUT"].includes(req.method) ? await bodyOf(req) : undefined;
  if (url.pathname === "/api/v1/session" && req.method === "POST") {
    if (body?.token !== TOKEN) return answer(res, problem(401, "Unauthorized", "the token is not known to the control plane, or has expired"));
    const id = randomBytes(16).toString("hex");
    sessions.add(id);
    res.setHeader("Set-Cookie", `muster_session=${id}; Path=/; HttpOnly; SameSite=Strict`);
    return answer(res, { status: 204 });
  }
  if (url.pathname === "/api/v1/session" && req.method === "DELETE") {
    sessions.delete(cookieOf(req));
    return answer(res, { status: 204 });
  }
  if (!sessions.has(cookieOf(req))) return answer(res, problem(401, "Unauthorized", "log in first"));
  const failing = failures.find((f) => url.pathname.startsWith(f.path));
  if (failing) return answer(res, problem(failing.status, "Internal Server Error", "the health engine can't be reached; it may be starting", { instance: "urn:muster:incident:mock" }));
  if (url.pathname === "/api/v1/health/stream") return stream(req, res);
  for (const [method, path, params, f] of ROUTES) {
    const m = path.exec(url.pathname);
    if (!m || method !== req.method) continue;
    const bad = [...url.searchParams.keys()].find((k) => !PARAMS[params].includes(k));
    if (bad) return answer(res, problem(400, "Bad Request", `${bad}: unknown parameter; want ${PARAMS[params].join(", ") || "none"}`));
    return answer(res, f(m, url.searchParams, body));
  }
  return answer(res, notFound(`there is no ${url.pathname}; GET /api/v1/openapi.json lists what there is`));
}

function stream(req, res) {
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
  if (!STILL) drift();
  evaluate(!STILL);
}, TICK);
setInterval(() => {
  for (const res of streams) res.write(": keep-alive\n\n");
}, 15_000);

const server = createServer((req, res) => {
  const url = new URL(req.url, "http://mock");
  const control = /^\/mock\/(\w+)$/.exec(url.pathname)?.[1];
  const work = control && req.method === "POST" ? bodyOf(req).then((b) => { CONTROLS[control]?.(b ?? {}); answer(res, { status: 204 }); }) : url.pathname.startsWith("/api/") ? handleAPI(req, res, url) : handleStatic(res, url);
  Promise.resolve(work).catch((e) => answer(res, problem(500, "Internal Server Error", String(e))));
}).listen(PORT, "127.0.0.1", () => console.log(`mock console on http://127.0.0.1:${server.address().port}/#token=${TOKEN}`));
