// An invented fleet for the mock server: sites over the world with signals, faults
// and scores, computed as the health model does. The same seed gives the same fleet.

import { checkBody, conflict, durationOf, invalidField } from "./check.mjs";

const CITIES = `
eu-west|Paris,48.8566,2.3522|Lyon,45.764,4.8357|Marseille,43.2965,5.3698|Toulouse,43.6047,1.4442|Brussels,50.8503,4.3517|Amsterdam,52.3676,4.9041|London,51.5074,-0.1278|Manchester,53.4808,-2.2426|Dublin,53.3498,-6.2603|Madrid,40.4168,-3.7038|Barcelona,41.3874,2.1686|Lisbon,38.7223,-9.1393
eu-central|Berlin,52.52,13.405|Munich,48.1351,11.582|Hamburg,53.5511,9.9937|Cologne,50.9375,6.9603|Frankfurt,50.1109,8.6821|Zurich,47.3769,8.5417|Vienna,48.2082,16.3738|Prague,50.0755,14.4378|Warsaw,52.2297,21.0122|Milan,45.4642,9.19|Rome,41.9028,12.4964|Budapest,47.4979,19.0402
eu-north|Copenhagen,55.6761,12.5683|Stockholm,59.3293,18.0686|Oslo,59.9139,10.7522|Helsinki,60.1699,24.9384|Gothenburg,57.7089,11.9746|Tallinn,59.437,24.7536
us-east|New York,40.7128,-74.006|Boston,42.3601,-71.0589|Philadelphia,39.9526,-75.1652|Washington,38.9072,-77.0369|Atlanta,33.749,-84.388|Miami,25.7617,-80.1918|Toronto,43.6532,-79.3832|Montreal,45.5017,-73.5673
us-central|Chicago,41.8781,-87.6298|Dallas,32.7767,-96.797|Houston,29.7604,-95.3698|Denver,39.7392,-104.9903|Minneapolis,44.9778,-93.265|Mexico City,19.4326,-99.1332
us-west|San Francisco,37.7749,-122.4194|Los Angeles,34.0522,-118.2437|Seattle,47.6062,-122.3321|Portland,45.5152,-122.6784|Phoenix,33.4484,-112.074|Vancouver,49.2827,-123.1207
sa-east|São Paulo,-23.5505,-46.6333|Rio de Janeiro,-22.9068,-43.1729|Buenos Aires,-34.6037,-58.3816|Santiago,-33.4489,-70.6693|Bogotá,4.711,-74.0721|Lima,-12.0464,-77.0428
ap-south|Mumbai,19.076,72.8777|Bengaluru,12.9716,77.5946|Delhi,28.6139,77.209|Chennai,13.0827,80.2707|Singapore,1.3521,103.8198|Jakarta,-6.2088,106.8456
ap-east|Tokyo,35.6762,139.6503|Osaka,34.6937,135.5023|Seoul,37.5665,126.978|Taipei,25.033,121.5654|Hong Kong,22.3193,114.1694|Sydney,-33.8688,151.2093|Melbourne,-37.8136,144.9631|Auckland,-36.8509,174.7645
me-africa|Dubai,25.2048,55.2708|Istanbul,41.0082,28.9784|Cairo,30.0444,31.2357|Nairobi,-1.2921,36.8219|Lagos,6.5244,3.3792|Johannesburg,-26.2041,28.0473|Cape Town,-33.9249,18.4241`
  .trim()
  .split("\n")
  .flatMap((line) => {
    const [region, ...cities] = line.split("|");
    return cities.map((c) => {
      const [city, lat, lon] = c.split(",");
      return { region, city, lat: Number(lat), lon: Number(lon) };
    });
  });

const DIMENSIONS = ["connectivity", "reliability", "security", "performance"];

// name, dimension, good, bad, weight, critical, unit, healthy value, text, source
export const SIGNALS = [
  ["uplink", "connectivity", 1, 0, 3, true, "", 1, "offline: no connection to a regional", "regional gateway: muster_site_connected and its live view"],
  ["telemetry-age", "connectivity", 60, 300, 2, false, "seconds", 9, "no telemetry acknowledged for {value}", "regional gateway: muster_site_last_push_timestamp_seconds"],
  ["push-delay", "connectivity", 30, 300, 1, false, "seconds", 0.4, "samples arrive {value} late", "collector: muster_collector_push_delay_seconds"],
  ["spool-backlog", "connectivity", 67108864, 469762048, 1, false, "bytes", 12288, "{value} of samples wait on the site's disk", "collector: muster_collector_spool_bytes"],
  ["packet-loss", "connectivity", 1, 10, 2, false, "percent", 0.12, "{value} of TCP segments are sent again", "node_exporter: node_netstat_Tcp_RetransSegs"],
  ["nodes-not-ready", "reliability", 0, 33, 3, true, "percent", 0, "{value} of the nodes are not ready", "kube-state-metrics: kube_node_status_condition"],
  ["crash-looping", "reliability", 0, 2, 3, true, "count", 0, "{value} containers in CrashLoopBackOff", "kube-state-metrics: kube_pod_container_status_waiting_reason"],
  ["workloads-short", "reliability", 0, 60, 5, false, "percent", 0, "the worst workload lacks {value} of its replicas", "kube-state-metrics: kube_deployment_*"],
  ["restarts", "reliability", 1, 10, 1, false, "count", 0, "{value} container restarts in 10 minutes", "kube-state-metrics: kube_pod_container_status_restarts_total"],
  ["certificate-days", "security", 30, 1, 3, true, "days", 143, "a node's certificate expires in {value}", "kubelet: kubelet_certificate_manager_client_ttl_seconds"],
  ["policy-denied", "security", 0.5, 5, 4, false, "per second", 0.06, "network policies deny packets, {value}", "Cilium agent: cilium_drop_count_total"],
  ["security-updates", "security", 3, 15, 2, false, "count", 1, "{value} security updates wait on the worst node", "node_exporter textfile (apt_info.py): apt_upgrades_pending"],
  ["reboot-required", "security", 0, 1, 1, false, "", 0, "a node must reboot to finish an update", "node_exporter textfile (apt_info.py): node_reboot_required"],
  ["memory-available", "performance", 25, 5, 3, true, "percent", 57, "{value} of memory is available on the worst node", "node_exporter: node_memory_MemAvailable_bytes"],
  ["disk-used", "performance", 70, 95, 3, true, "percent", 48, "the fullest filesystem is {value} full", "node_exporter: node_filesystem_avail_bytes"],
  ["cpu-used", "performance", 60, 90, 3, false, "percent", 21, "{value} of the CPU is in use", "node_exporter: node_cpu_seconds_total"],
  ["cpu-throttled", "performance", 25, 75, 2, false, "percent", 1.4, "the worst container is throttled {value} of the time", "cAdvisor: container_cpu_cfs_throttled_periods_total"],
  ["gpu-hot", "performance", 85, 95, 1, false, "celsius", 0, "the hottest GPU has {value}", "DCGM exporter: DCGM_FI_DEV_GPU_TEMP", "gpu"],
  ["gpu-errors", "reliability", 0, 1, 2, false, "count", 0, "{value} GPUs report an Xid error", "DCGM exporter: DCGM_FI_DEV_XID_ERRORS", "gpu"],
].map(([name, dimension, good, bad, weight, critical, unit, healthy, text, source, pack = ""]) => ({ name, dimension, good, bad, weight, critical, unit, healthy, text, source, pack }));

export const FAULTS = {
  "uplink-down": { uplink: 0, "telemetry-age": 412 },
  "packet-loss": { "packet-loss": 11.8 },
  "node-not-ready": { "nodes-not-ready": 33.4, "workloads-short": 33 },
  "crash-loop": { "crash-looping": 2, "workloads-short": 66, restarts: 7 },
  "deployment-short": { "workloads-short": 58, restarts: 4 },
  "cert-expiring": { "certificate-days": 0.83 },
  "cert-ageing": { "certificate-days": 9 },
  "policy-denied": { "policy-denied": 104 },
  "policy-probing": { "policy-denied": 4.4 },
  "patch-overdue": { "security-updates": 41, "reboot-required": 1 },
  "disk-full": { "disk-used": 98.5 },
  "disk-filling": { "disk-used": 87 },
  "memory-pressure": { "memory-available": 3.1 },
  "memory-tight": { "memory-available": 11 },
  "cpu-busy": { "cpu-used": 86 },
  "cpu-throttled": { "cpu-throttled": 90, "cpu-used": 71 },
};

/** The metric that a signal is measured by. */
export const metricOf = (signal) => `mock_${signal.replaceAll("-", "_")}`;

export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const iso = (t) => new Date(t).toISOString();
const slug = (s) => s.normalize("NFD").replace(/[^A-Za-z ]/g, "").toLowerCase().replaceAll(" ", "-");

function format(v, unit) {
  const n = Math.abs(v) >= 100 ? Math.round(v).toString() : Number(v.toPrecision(3)).toString();
  switch (unit) {
    case "percent": return `${n}%`;
    case "seconds": return v >= 120 ? `${Number((v / 60).toPrecision(2))} min` : `${n} s`;
    case "days": return `${n} days`;
    case "bytes": return `${Math.round(v / 1048576)} MiB`;
    case "": case "count": return n;
    default: return `${n} ${unit}`;
  }
}

const HOUR = 3600_000;

export class MockFleet {
  constructor(count = 300, seed = 7, now = Date.now()) {
    this.rand = random(seed);
    this.sites = new Map();
    this.started = now;
    const pool = [];
    for (const c of CITIES) for (let i = 0; i < 1 + Math.floor(this.rand() * 4); i++) pool.push(c);
    const numbers = new Map();
    for (let i = 0; i < count; i++) {
      const c = i < CITIES.length ? CITIES[i] : pool[Math.floor(this.rand() * pool.length)];
      const no = (numbers.get(c.city) ?? 0) + 1;
      numbers.set(c.city, no);
      const tenant = i % 12 === 11 ? "globex" : "acme";
      const name = `${slug(c.city)}-${String(no).padStart(2, "0")}`;
      this.add({ tenant, name, city: c.city, region: c.region, lat: c.lat + (this.rand() - 0.5) * 0.25, lon: c.lon + (this.rand() - 0.5) * 0.35, year: 2015 + Math.floor(this.rand() * 10) }, now);
    }
    const list = [...this.sites.values()];
    const give = (n, faults) => {
      for (let i = 0; i < n; i++) {
        const s = list[Math.floor(this.rand() * list.length)];
        if (s.faults.size === 0) for (const f of faults) s.faults.set(f, now - Math.floor(this.rand() * 5 * HOUR) - 60_000);
      }
    };
    const share = Math.max(1, Math.round(count / 100));
    give(share, ["uplink-down"]);
    give(share, ["uplink-down", "crash-loop", "patch-overdue", "disk-full"]);
    give(share, ["crash-loop", "disk-full", "policy-denied", "cpu-throttled", "packet-loss"]);
    give(share, ["node-not-ready", "memory-pressure", "cert-expiring", "packet-loss"]);
    give(share, ["memory-pressure", "patch-overdue"]);
    give(3 * share, ["disk-filling", "cpu-busy", "policy-probing", "deployment-short", "cert-ageing"]);
    give(3 * share, ["memory-tight", "patch-overdue", "policy-probing", "deployment-short", "packet-loss"]);
    give(4 * share, ["cpu-throttled"]);
    for (const [i, s] of list.entries()) {
      if (i % 47 === 13) s.unknown = true;
      if (i % 61 === 20) s.maintenance = { reason: "replacing the switch, OPS-4711", until: iso(now + 3 * HOUR) };
      if (i % 71 === 33) s.place = null;
      if (i % 97 === 40) s.phase = "Approved";
    }
    this.evaluate(now);
  }

  add({ tenant, name, city, region, lat, lon, year }, now) {
    const s = {
      tenant, name, region, city, year, faults: new Map(), unknown: false, phase: "Online", maintenance: null, lastSeen: now, since: now - 3 * 24 * HOUR,
      place: { latitude: Number(lat.toFixed(5)), longitude: Number(lon.toFixed(5)), address: city },
      values: Object.fromEntries(SIGNALS.map((g) => [g.name, g.healthy * (0.9 + 0.2 * this.rand())])),
      colour: null,
    };
    s.values.uplink = 1;
    this.sites.set(`${tenant}/${name}`, s);
    return s;
  }

  /** Evaluates all sites; returns those that changed. */
  evaluate(now, drift = false) {
    const changed = [];
    for (const s of this.sites.values()) {
      if (drift && this.rand() < 0.04) s.values["cpu-used"] = 15 + 25 * this.rand();
      const offline = s.faults.has("uplink-down");
      if (s.phase === "Online" || s.phase === "Offline") s.phase = offline ? "Offline" : "Online";
      if (!offline && s.phase === "Online") s.lastSeen = now;
      const before = s.view ? JSON.stringify([s.view.score, s.view.colour, s.view.phase, s.view.reasons.map((r) => r.signal), s.view.maintenance]) : "";
      this.score(s, now);
      if (before !== JSON.stringify([s.view.score, s.view.colour, s.view.phase, s.view.reasons.map((r) => r.signal), s.view.maintenance])) changed.push(s.view);
    }
    this.asOf = iso(now);
    return changed;
  }

  /** Evaluates a site by these signals; of a copy of it that is a trial. */
  score(s, now, signals = SIGNALS) {
    const blind = s.unknown || s.phase === "Approved" || s.phase === "Pending";
    const offlineSince = s.faults.get("uplink-down");
    const dims = {};
    const reasons = [];
    let capped = null;
    if (s.signalsOf !== signals) {
      s.signalsOf = signals;
      s.signals = signals.map(({ name, dimension, good, bad, weight, critical, unit, text, source, pack }) => ({
        name, dimension, good, bad, weight, critical, unit, text, source, pack, applies: pack !== "gpu", value: 0, score: 0, known: false, since: null, error: "",
      }));
    }
    for (const g of s.signals) {
      g.value = s.values[g.name];
      g.since = null;
      for (const [f, at] of s.faults) {
        if (FAULTS[f]?.[g.name] !== undefined) {
          g.value = FAULTS[f][g.name];
          g.since = at;
        }
      }
      const failed = s.failing === g.name;
      g.known = g.applies && !(blind && g.name !== "uplink") && !failed && s.phase !== "Approved";
      g.score = Math.min(1, Math.max(0, (g.value - g.bad) / (g.good - g.bad)));
      g.error = failed ? "query: 422: many-to-many matching not allowed: matching labels must be unique on one side" : "";
    }
    for (const d of DIMENSIONS) {
      const of = s.signals.filter((g) => g.dimension === d && g.applies);
      const known = of.filter((g) => g.known);
      const total = of.reduce((n, g) => n + g.weight, 0);
      const w = known.reduce((n, g) => n + g.weight, 0);
      const critical = known.find((g) => g.critical && g.score === 0);
      let score = w >= total / 2 ? (100 * known.reduce((n, g) => n + g.weight * g.score, 0)) / w : null;
      const before = w > 0 ? (100 * known.reduce((n, g) => n + g.weight * g.score, 0)) / w : null;
      if (critical) score = Math.min(score ?? 39, d === "connectivity" ? 0 : 39);
      dims[d] = { score, plain: before, known: score !== null, w, critical };
      if (critical && !capped) capped = critical;
    }
    s.dims = dims;
    const known = DIMENSIONS.filter((d) => dims[d].score !== null);
    const plain = known.length >= 2 ? known.reduce((n, d) => n + dims[d].score, 0) / known.length : null;
    const score = capped ? Math.min(39, plain ?? 39) : plain;
    for (const g of s.signals) {
      if (!g.known || g.score >= 0.995) continue;
      const lost = (100 * g.weight * (1 - g.score)) / dims[g.dimension].w / Math.max(1, known.length);
      reasons.push({
        dimension: g.dimension, signal: g.name, value: round(g.value), threshold: g.score === 0 ? g.bad : g.good, pointsLost: round(lost),
        since: iso(g.since ?? now - 30_000), text: g.text.replace("{value}", format(g.value, g.unit)),
      });
    }
    const caps = reasons.find((r) => r.signal === capped?.name);
    if (caps && score !== null) caps.pointsLost = round(Math.max(0, caps.pointsLost + 100 - score - reasons.reduce((n, r) => n + r.pointsLost, 0)));
    reasons.sort((a, b) => b.pointsLost - a.pointsLost);
    if (score === null) reasons.unshift({ dimension: "reliability", signal: "", value: null, threshold: null, pointsLost: 0, since: iso(s.since), text: "reliability is unknown: too few signals have data" });
    const colour = score === null ? "grey" : score > 75 ? "green" : score >= 40 ? "orange" : "red";
    if (s.colour !== null && s.colour !== colour) s.since = now;
    else if (s.colour === null && s.faults.size > 0) s.since = Math.max(...s.faults.values());
    s.colour = colour;
    s.view = {
      name: s.name, tenant: s.tenant, region: s.region, virtualSites: memberships(s), phase: s.phase, lastSeen: s.phase === "Approved" || s.phase === "Pending" ? null : iso(s.lastSeen),
      score: score === null ? null : round(score), colour, since: iso(s.since),
      dimensions: Object.fromEntries(DIMENSIONS.map((d) => {
        const v = dims[d].score;
        return [d, {
          score: v === null ? null : round(v), colour: v === null ? "grey" : v > 75 ? "green" : v >= 40 ? "orange" : "red", known: v !== null,
          staleSeconds: offlineSince && d !== "connectivity" ? Math.round((now - offlineSince) / 1000) : 0,
        }];
      })),
      reasons, place: s.place, maintenance: s.maintenance,
    };
  }

  detail(s) {
    return {
      ...s.view, asOf: this.asOf, labels: labels(s), policy: "default", regional: s.phase === "Online" ? `${s.region.slice(0, 2)}-1` : "", fromStore: false, shadow: s.shadow ?? null,
      signals: s.signals.map(({ name, dimension, good, bad, weight, critical, unit, source, value, score, known, error, applies, pack }) => ({
        query: `max by (tenant, site) (${metricOf(name)})`, sparse: false,
        name, dimension, value: known ? round(value) : null, score: known ? round(score) : null, known, applies, pack, error, good, bad, weight, critical, unit, source,
        asOf: known ? this.asOf : null,
      })),
    };
  }

  /** The arithmetic of the score. The mock's own is simpler than the engine's: a mean and one cap. */
  explanation(s) {
    const points = new Map(s.view.reasons.map((r) => [r.signal, r.pointsLost]));
    const known = DIMENSIONS.filter((d) => s.dims[d].score !== null);
    const mean = known.length > 0 ? known.reduce((n, d) => n + s.dims[d].plain, 0) / known.length : 0;
    const lost = s.view.reasons.map((r) => ({ dimension: r.dimension, signal: r.signal, points: r.pointsLost, text: r.text }));
    const capped = s.signals.find((g) => g.known && g.critical && g.score === 0);
    return {
      site: s.name, tenant: s.tenant, policy: "default", shadow: false, overrides: [], at: this.asOf, score: s.view.score, colour: s.view.colour, since: s.view.since,
      worstShare: 0, mean: round(mean), worst: 0, worstDimension: known[0] ?? "", beforeCaps: round(mean), formula: s.view.score === null ? "" : `1 × mean ${round(mean)} = ${round(mean)}`,
      dimensions: DIMENSIONS.map((d) => ({
        name: d, weight: 1, applies: true, known: s.dims[d].score !== null, incomplete: s.dims[d].score === null, beforeCaps: round(s.dims[d].plain ?? 0), score: round(s.dims[d].score ?? 0),
        signals: s.signals.filter((g) => g.dimension === d).map((g) => ({
          name: g.name, value: g.known ? round(g.value) : null, unit: g.unit, good: g.good, bad: g.bad, score: g.known ? round(g.score) : null, weight: g.weight, applies: g.applies, counted: g.known,
          error: g.error, objects: [], pack: g.pack, source: g.source, points: points.get(g.name) ?? 0,
        })),
      })),
      caps: capped ? [{ signal: capped.name, at: 39, without: round(mean), leaves: s.view.score, binds: true, text: `cap of ${capped.name}: 39` }] : [],
      held: false, agreed: 0, needed: 0, waits: "", lost,
    };
  }

  askReset(s, body, now) {
    const bad = checkBody(body, ["wait", "discardSpool", "approveAgain"]);
    if (bad) return bad;
    const wait = durationOf(body.wait);
    if (!(wait >= 60_000 && wait <= 720 * HOUR)) return invalidField("wait", `${JSON.stringify(body.wait ?? "")}: want how long the request waits for the site, 1m to 720h, such as 1h`);
    s.reset = { asked: now, expires: now + wait, cancelled: 0 };
    return undefined;
  }

  cancelReset(s, now) {
    if (!s.reset || s.reset.cancelled) return conflict(`nobody asks for a reset of ${s.tenant}/${s.name}`);
    if (!["Resetting", "Completed"].includes(this.resetOf(s, now).phase)) s.reset.cancelled = now;
    return { status: 204 };
  }

  /** Old ones refuse. A site that is online goes through the steps in a few seconds; another one waits. */
  resetOf(s, now) {
    if (!s.reset) return null;
    const { asked, expires, cancelled } = s.reset;
    const view = (phase, since, more = {}) => ({ phase, since: iso(since), expires: null, message: "", overdue: false, ...more });
    if (cancelled) return view("Cancelled", cancelled);
    const age = s.phase === "Online" ? now - asked : 0;
    if (age < 4_000) return view("Asked", asked, { expires: iso(expires), message: s.phase === "Online" ? "" : "it is asked when it is back" });
    if (s.year < 2019) return view("Refused", asked + 4_000, { message: "its own operator has not switched it on: set factoryReset.enabled in its edge.yaml, and restart muster-edge" });
    if (age < 6_000) return view("Confirmed", asked + 4_000, { expires: iso(expires) });
    if (age < 12_000) return view("Resetting", asked + 6_000, { message: "3 workloads are still there" });
    return view("Completed", asked + 12_000);
  }

  object(s, now) {
    return {
      name: s.name, tenant: s.tenant, phase: s.phase, labels: labels(s),
      systemLabels: { "muster.dev/key": "6a75fcf6b892db9146f8fcb5450e0d20047c1622deb17612312ca66893e042f", "muster.dev/tenant": s.tenant, "muster.dev/system-arch": s.year > 2019 ? "arm64" : "amd64", "muster.dev/system-os": "Debian-GNU-Linux-12-bookworm", "muster.dev/system-kernel": "6.1.0-28", "muster.dev/system-cpus": "4", "muster.dev/system-memory": "16Gi", "muster.dev/system-vendor": "Dell-Inc" },
      versions: { agent: "0.4.2", kernel: "6.1.0-28", kubernetes: "v1.35.2", os: "Debian GNU/Linux 12 (bookworm)" },
      conditions: [
        { type: "Connected", status: s.phase === "Online" ? "True" : "False", reason: s.phase === "Online" ? "StreamOpen" : "NoHeartbeat", message: s.phase === "Online" ? "" : "three heartbeats were missed", lastTransitionTime: iso(s.since) },
        { type: "PolicyApplied", status: "True", reason: "Applied", message: "", lastTransitionTime: iso(now - 20 * HOUR) },
        { type: "SpoolFilling", status: "False", reason: "Draining", message: "", lastTransitionTime: iso(now - 20 * HOUR) },
        { type: "SamplesDoubtful", status: "False", reason: "Plausible", message: "", lastTransitionTime: iso(now - 20 * HOUR) },
        { type: "SeriesBudgetExceeded", status: "False", reason: "WithinBudget", message: "1,412 of 2,000 series", lastTransitionTime: iso(now - 20 * HOUR) },
      ],
      place: s.place, maintenance: s.maintenance, reset: this.resetOf(s, now), regional: s.phase === "Online" ? `${s.region.slice(0, 2)}-1` : "", lastSeen: s.view.lastSeen, createdAt: iso(now - 90 * 24 * HOUR),
      software: [
        { component: "os", running: "6.1.0", wanted: "", state: "", percent: null, startsAt: null, message: "" },
        { component: "agent", running: "0.1.0", wanted: "0.2.0", state: "Downloading", percent: 40, startsAt: null, message: "" },
      ],
      certificateNotAfter: iso(now + 14 * HOUR), policyHash: "sha256:3f9a0c1be2d47788aa01c6ff0912de77b3c1a2f4d5e6978812ab34cd56ef7890", token: "stores-2026",
      approved: true, decommissioned: false,
    };
  }

  virtualSites() {
    const defs = new Map();
    for (const s of this.sites.values()) {
      for (const ref of s.view.virtualSites) {
        const id = `${s.tenant}/${ref}`;
        if (!defs.has(id)) defs.set(id, []);
        defs.get(id).push(s.view);
      }
    }
    if (!defs.has("acme/shared/lab")) defs.set("acme/shared/lab", []);
    return [...defs].sort().map(([id, members]) => {
      const [tenant, namespace, name] = id.split("/");
      const counted = members.filter((m) => !m.maintenance);
      const counts = { green: 0, orange: 0, red: 0, grey: 0 };
      for (const m of counted) counts[m.colour]++;
      const scores = counted.filter((m) => m.score !== null).sort((a, b) => a.score - b.score || (a.name < b.name ? -1 : 1));
      return {
        name, namespace, tenant, description: DESCRIPTIONS[`${namespace}/${name}`] ?? "", sites: members.length,
        mean: scores.length ? round(scores.reduce((n, m) => n + m.score, 0) / scores.length) : null,
        p10: scores.length ? scores[Math.ceil(scores.length / 10) - 1].score : null,
        worst: scores.length ? { site: scores[0].name, score: scores[0].score } : null,
        counts, maintenance: members.length - counted.length,
        percentUnhealthy: counted.length ? round((100 * (counts.orange + counts.red)) / counted.length) : 0,
      };
    });
  }

  policies() {
    return ["acme", "globex"].map((tenant) => {
      const sites = [...this.sites.values()].filter((s) => s.tenant === tenant);
      return {
        tenant, name: "default", sites: sites.length, error: "",
        shadow: false, wouldChange: 0, examples: [],
        signals: SIGNALS.map((g, i) => ({ name: g.name, dimension: g.dimension, error: "", sitesKnown: sites.filter((s) => s.signals[i].known).length, queryMillis: 3 + ((i * 37) % 41) / 3 })),
      };
    });
  }

  /** [t, value] for a range; the fault's age shows as a step. */
  history(s, dimension, start, end, step) {
    const v = dimension ? s.view.dimensions[dimension].score : s.view.score;
    if (v === null) return [];
    const since = Math.max(0, ...s.faults.values()) / 1000;
    const rand = random([...s.name].reduce((n, c) => n * 31 + c.charCodeAt(0), 7) + (dimension?.length ?? 0));
    const seed = rand();
    const gapAt = start + (end - start) * (0.2 + 0.5 * rand());
    const out = [];
    for (let t = start; t <= end + 1e-6; t += step) {
      if (s.name.length % 3 === 0 && t > gapAt && t < gapAt + (end - start) * 0.06) continue;
      const moment = momentAt(s, dimension, t);
      if (moment?.value === null) continue;
      const base = moment?.value ?? (s.faults.size > 0 && t < since ? 97 : v);
      out.push([t, String(Math.max(0, Math.min(100, base - rough(seed, t) * (base > 45 ? 3.6 : 1.5))))]);
    }
    return out;
  }
}

const DESCRIPTIONS = {
  "shared/all": "every site", "shared/all-eu": "all sites in Europe", "shared/americas": "North and South America", "shared/apac": "Asia and the Pacific",
  "shared/old-hardware": "model years 2015 to 2017", "shared/canary": "the first to get new versions", "shared/lab": "test racks",
};

function memberships(s) {
  const out = ["shared/all"];
  if (s.region.startsWith("eu")) out.push("shared/all-eu");
  if (/^(us|sa)/.test(s.region)) out.push("shared/americas");
  if (s.region.startsWith("ap")) out.push("shared/apac");
  if (s.year <= 2017) out.push("shared/old-hardware");
  if (s.name.endsWith("-01") && s.tenant === "acme") out.push("shared/canary");
  return out;
}

/** What a test had a signal or score ("" for the site's) be for some time; a value of null: nothing. Without a name it is all of them. */
export const momentAt = (s, name, t) => (s.moments ?? []).find((m) => t > m.from && t <= m.to && (m.signal === undefined || m.signal === name));

/** Noise from 0 to 1 that is the same at a time whoever asks, and however closely. */
export function rough(seed, t) {
  const x = Math.sin(Math.floor(t / 30) * 12.9898 + seed * 78.233) * 43758.5453;
  return x - Math.floor(x);
}

const labels = (s) => ({ region: s.region, "model-year": String(s.year), store: s.name.slice(-2), tier: s.name.endsWith("-01") ? "flagship" : "standard" });
const round = (v) => Math.round(v * 100) / 100;
