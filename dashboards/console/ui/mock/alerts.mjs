// Invented alerts for the mock, from the faults of its fleet, with silences, history
// and maintenance windows.

import { createHash, randomUUID } from "node:crypto";
import { checkBody, conflict, durationOf, goDuration, invalid, invalidField, notFound } from "./check.mjs";
import { random } from "./fleet.mjs";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const iso = (t) => new Date(t).toISOString().replace(/\.\d+Z$/, "Z");

// fault → name, severity, summary, further labels
const RULES = {
  "uplink-down": ["SiteDown", "critical", "No connection to any regional for 7 minutes", {}],
  "packet-loss": ["UplinkLossy", "warning", "11.8 % of TCP segments are sent again", { device: "eth0" }],
  "node-not-ready": ["NodeNotReady", "critical", "A node is not ready for 5 minutes", { node: "n2" }],
  "crash-loop": ["PodCrashLooping", "warning", "Pod checkout-5d4f restarts again and again", { namespace: "shop", pod: "checkout-5d4f" }],
  "deployment-short": ["DeploymentReplicasMissing", "warning", "Deployment catalog lacks 58 % of its replicas", { namespace: "shop", deployment: "catalog" }],
  "cert-expiring": ["CertificateExpires", "critical", "A node's certificate expires in 20 hours", { node: "n1" }],
  "cert-ageing": ["CertificateAgeing", "info", "A node's certificate expires in 9 days", { node: "n1" }],
  "policy-denied": ["NetworkPolicyDenials", "warning", "Network policies deny 104 packets a second", {}],
  "policy-probing": ["NetworkPolicyProbing", "info", "Network policies deny 4 packets a second", {}],
  "patch-overdue": ["SecurityUpdatesWait", "info", "41 security updates wait", {}],
  "disk-full": ["DiskFull", "critical", "/var is 98.5 % full", { mountpoint: "/var", node: "n1" }],
  "disk-filling": ["DiskFilling", "warning", "/var is full within 3 days", { mountpoint: "/var", node: "n1" }],
  "memory-pressure": ["MemoryPressure", "warning", "3.1 % of memory is available", { node: "n3" }],
  "memory-tight": ["MemoryTight", "info", "11 % of memory is available", { node: "n3" }],
  "cpu-busy": ["CPUBusy", "info", "86 % of the CPU is in use", {}],
  "cpu-throttled": ["ContainerThrottled", "warning", "Container app is throttled 90 % of the time", { namespace: "payments", container: "app" }],
};
const RANK = { critical: 0, warning: 1, info: 2 };

const matches = (m, labels) => {
  const v = labels[m.name] ?? "";
  return (m.isRegex ? new RegExp(`^(?:${m.value})$`).test(v) : v === m.value) === (m.isEqual ?? true);
};

export class MockAlerts {
  constructor(fleet, now = Date.now()) {
    this.fleet = fleet;
    this.known = new Map(); // fingerprint → the alert as it was last
    this.windows = new Map(); // "site/tenant/name" or "vs/tenant/ns/name" → windows
    this.silences = [];
    const list = this.alerts(now);
    const quiet = list.find((a) => a.severity === "warning" && a.tenant === "acme" && a.site);
    const make = (o) => this.silences.push({ id: randomUUID(), tenant: "acme", createdBy: "ada@example.com", maintenance: false, ...o });
    const eq = (name, value) => ({ name, value, isRegex: false, isEqual: true });
    if (quiet) make({ matchers: [eq("tenant", "acme"), eq("alertname", quiet.name), eq("site", quiet.site)], startsAt: now - 2 * HOUR, endsAt: now + 3 * HOUR, comment: "known, the vendor looks at it: OPS-4802" });
    make({ matchers: [eq("tenant", "acme"), { name: "site", value: "berlin-.*", isRegex: true, isEqual: true }, { name: "severity", value: "critical", isRegex: false, isEqual: false }], startsAt: now + 5 * HOUR, endsAt: now + 9 * HOUR, comment: "power work in the Berlin halls", createdBy: "grace@example.com" });
    make({ matchers: [eq("tenant", "acme"), eq("alertname", "SecurityUpdatesWait")], startsAt: now - 3 * DAY, endsAt: now - 2 * DAY, comment: "patch window was put off" });
    for (const s of fleet.sites.values()) {
      if (!s.maintenance) continue;
      this.silences.push({ id: randomUUID(), tenant: s.tenant, matchers: [eq("tenant", s.tenant), eq("site", s.name)], startsAt: now - HOUR, endsAt: Date.parse(s.maintenance.until), createdBy: "muster-maintenance", comment: `maintenance of ${s.name}: ${s.maintenance.reason}`, maintenance: true });
    }
    const some = [...fleet.sites.values()][3];
    if (some) this.windows.set(`site/${some.tenant}/${some.name}`, [{ name: "monthly-updates", reason: "monthly updates", start: null, schedule: "0 2 * * SUN", timeZone: "Europe/Berlin", duration: "2h0m0s" }]);
    this.windows.set("vs/acme/shared/all-eu", [{ name: "core-router", reason: "core router is replaced, CHG-118", start: iso(now + 2 * DAY), schedule: "", timeZone: "", duration: "4h0m0s" }]);
  }

  stateOf = (s, now) => (s.endsAt <= now ? "expired" : s.startsAt > now ? "pending" : "active");

  /** All that fires now, whole. */
  alerts(now = Date.now()) {
    const out = [];
    const active = this.silences.filter((s) => this.stateOf(s, now) === "active");
    const add = (tenant, site, region, virtualSites, name, severity, summary, more, since) => {
      const labels = { alertname: name, tenant, severity, ...(site ? { site } : {}), ...(region ? { region } : {}), ...(virtualSites.length ? { virtual_sites: `|${virtualSites.join("|")}|` } : {}), ...more };
      const fingerprint = createHash("sha256").update(JSON.stringify(Object.entries(labels).sort())).digest("hex").slice(0, 16);
      const silencedBy = active.filter((x) => x.tenant === tenant && x.matchers.every((m) => matches(m, labels))).map((x) => x.id);
      const a = {
        fingerprint, name, tenant, site, region, virtualSites, severity, state: silencedBy.length ? "suppressed" : "active", silencedBy, inhibitedBy: [], startsAt: iso(since), updatedAt: iso(now), endsAt: iso(now + 4 * MINUTE),
        labels, annotations: { summary, description: `${summary}. Look at the site's page first; its reasons say what else is wrong there.`, runbook_url: name === "SiteDown" ? "http://muster.invalid/runbooks/SiteDown" : `https://runbooks.example.com/${name.toLowerCase()}` },
        generatorURL: site ? `http://muster.invalid/graph?g0.expr=${encodeURIComponent(name.startsWith("Disk") ? "max by (site) (mock_disk_used) > 90" : "node_load1 > 0.5")}&g0.tab=1` : "http://muster.invalid",
      };
      out.push(a);
      return a;
    };
    for (const s of this.fleet.sites.values()) {
      let down;
      const here = [];
      for (const [f, since] of s.faults) {
        const r = RULES[f];
        if (!r) continue;
        const a = add(s.tenant, s.name, s.region, s.view.virtualSites, r[0], r[1], r[2], r[3], since);
        if (f === "uplink-down") down = a;
        else here.push(a);
      }
      if (down) for (const a of here) Object.assign(a, { state: "suppressed", inhibitedBy: [down.fingerprint] });
    }
    if (this.fleet.sites.size > 0) add("acme", "", "us-east", [], "RegionalDown", "critical", "Regional us-2 does not answer; its sites go through us-1", { regional: "us-2" }, this.fleet.started - 18 * MINUTE);
    out.sort((a, b) => RANK[a.severity] - RANK[b.severity] || (a.startsAt < b.startsAt ? 1 : a.startsAt > b.startsAt ? -1 : a.fingerprint < b.fingerprint ? -1 : 1));
    for (const a of out) this.known.set(a.fingerprint, a);
    return out;
  }

  scope(q, tenants) {
    const vs = q.get("virtualSite") && (q.get("virtualSite").includes("/") ? q.get("virtualSite") : `shared/${q.get("virtualSite")}`);
    return this.alerts().filter((a) => tenants.includes(a.tenant) && (!q.get("site") || a.site === q.get("site")) && (!vs || a.virtualSites.includes(vs)));
  }

  list(q, tenants) {
    const text = (q.get("q") ?? "").toLowerCase().trim();
    const state = q.get("state") || "all";
    const all = this.scope(q, tenants).filter((a) =>
      (!q.get("severity") || a.severity === q.get("severity")) && (state === "all" || a.state === state) &&
      (!text || [...Object.values(a.labels), ...Object.values(a.annotations)].some((v) => v.toLowerCase().includes(text))));
    const limit = Number(q.get("limit") || 100);
    const from = q.get("cursor") ? all.findIndex((a) => a.fingerprint === q.get("cursor")) + 1 : 0;
    if (q.get("cursor") && from === 0) return invalidField("cursor", "is not a cursor of this list");
    const alerts = all.slice(from, from + limit);
    return { json: { asOf: iso(Date.now()), total: all.length, counts: this.counts(all), alerts, ...(from + limit < all.length ? { nextCursor: alerts.at(-1).fingerprint } : {}) } };
  }

  /** As if a route grouped by alertname, and another took what no site has. */
  groups(q, tenants) {
    const all = this.list(new URLSearchParams([...q].filter(([k]) => k !== "sort" && k !== "limit").concat([["limit", "1000"]])), tenants).json.alerts;
    const by = new Map();
    for (const a of all) by.set(`${a.tenant}/${a.name}`, [...(by.get(`${a.tenant}/${a.name}`) ?? []), a]);
    const groups = [...by.values()].map((list) => {
      const firing = list.filter((a) => a.state === "active");
      const times = list.map((a) => a.startsAt).sort();
      return { receiver: list[0].severity === "info" ? "" : "on-call", tenant: list[0].tenant, labels: { alertname: list[0].name }, total: list.length, counts: this.counts(firing), suppressed: list.length - firing.length, startsAt: times[0], newestAt: times.at(-1), alerts: list.slice(0, 50) };
    });
    const newest = (a, b) => Date.parse(b.newestAt) - Date.parse(a.newestAt) || (a.receiver < b.receiver ? -1 : a.receiver > b.receiver ? 1 : 0);
    const orders = { newest, count: (a, b) => b.total - a.total || newest(a, b), severity: (a, b) => b.counts.critical - a.counts.critical || b.counts.warning - a.counts.warning || b.counts.info - a.counts.info || newest(a, b) };
    groups.sort(orders[q.get("sort") || "severity"]);
    return { json: { asOf: iso(Date.now()), total: groups.length, groups: groups.slice(0, Number(q.get("limit") || 100)) } };
  }

  loudness(tenants) {
    const rules = [["NetworkPolicyDenials", 66, 0], ["PodCrashLooping", 41, 3], ["SiteDown", 9, 0], ["DiskFilling", 4, 0]].filter(() => tenants.includes("acme") && this.fleet.sites.size > 0)
      .map(([rule, notifications, failed]) => ({ tenant: "acme", rule, notifications, failed, receivers: failed ? ["mail", "on-call"] : ["on-call"] }));
    return { json: { hours: 24, counted: true, total: rules.reduce((n, r) => n + r.notifications, 0), rules } };
  }

  counts(list) {
    const n = { critical: 0, warning: 0, info: 0 };
    for (const a of list) n[a.severity]++;
    return n;
  }

  state(q, tenants) {
    const all = this.scope(q, tenants);
    const firing = all.filter((a) => a.state === "active");
    return { json: { asOf: iso(Date.now()), firing: this.counts(firing), suppressed: all.length - firing.length, sites: new Set(firing.filter((a) => a.site).map((a) => `${a.tenant}/${a.site}`)).size } };
  }

  detail(fingerprint, tenants) {
    if (!/^[0-9a-f]{16}$/.test(fingerprint)) return invalidField("fingerprint", `${JSON.stringify(fingerprint)}: want 16 hexadecimal digits`);
    const now = Date.now();
    let a = this.alerts(now).find((x) => x.fingerprint === fingerprint);
    const old = this.known.get(fingerprint);
    if (!a && old) a = { ...old, state: "resolved", silencedBy: [], inhibitedBy: [], endsAt: iso(now) };
    if (!a || !tenants.includes(a.tenant)) return notFound(`there is no alert ${fingerprint} in the tenants that you may read`);
    const rand = random(parseInt(fingerprint.slice(0, 7), 16));
    const history = [{ startsAt: a.startsAt, endsAt: a.state === "resolved" ? a.endsAt : null }];
    for (let t = Date.parse(a.startsAt), i = 0; i < 5; i++) {
      const end = t - (2 + rand() * 30) * HOUR;
      t = end - (0.1 + rand() * 4) * HOUR;
      history.push({ startsAt: iso(t), endsAt: iso(end) });
    }
    return { json: { ...a, history } };
  }

  listSilences(q, tenants) {
    const now = Date.now();
    const state = q.get("state") || "all";
    const all = this.silences.map((s) => ({ ...s, startsAt: iso(s.startsAt), endsAt: iso(s.endsAt), state: this.stateOf(s, now) }));
    return { json: { silences: all.filter((s) => tenants.includes(s.tenant) && (state === "all" || s.state === state)) } };
  }

  silence(tenants, body, user) {
    const bad = checkBody(body, ["matchers", "startsAt", "endsAt", "duration", "comment"]);
    if (bad) return bad;
    const errors = [];
    const say = (field, detail) => errors.push({ field, detail });
    if (!Array.isArray(body.matchers) || body.matchers.length < 1 || body.matchers.length > 20) say("matchers", `want 1 to 20 of them, have ${body.matchers?.length ?? 0}`);
    else {
      body.matchers.forEach((m, i) => {
        const unknown = Object.keys(m).find((k) => !["name", "value", "isRegex", "isEqual"].includes(k));
        if (unknown) say(`matchers[${i}].${unknown}`, "unknown field");
        if (m.name === "tenant") say(`matchers[${i}].name`, "the tenant is set by the server, from the parameter tenant; remove it");
        else if (!m.name) say(`matchers[${i}].name`, '"": not a label\'s name');
        if (m.isRegex) {
          try {
            new RegExp(m.value);
          } catch (e) {
            say(`matchers[${i}].value`, `not a regular expression: ${e.message}`);
          }
        }
      });
    }
    const comment = String(body.comment ?? "").trim();
    if (!comment || comment.length > 1000) say("comment", "want 1 to 1000 characters: why, for those who find the silence later");
    const now = Date.now();
    const startsAt = Math.max(now, Date.parse(body.startsAt ?? "") || now);
    let endsAt = NaN;
    if (body.endsAt && body.duration) say("duration", "want either endsAt or duration, not both");
    else if (body.endsAt) endsAt = Date.parse(body.endsAt);
    else {
      endsAt = startsAt + durationOf(body.duration, true);
      if (Number.isNaN(endsAt) || endsAt <= startsAt) say("duration", `${JSON.stringify(body.duration ?? "")}: want a duration such as 30m, 2h or 1d, or a time in endsAt`);
    }
    if (endsAt <= startsAt) say("endsAt", "is in the past, or not after startsAt");
    if (endsAt - startsAt > 366 * DAY) say("endsAt", "a silence lasts at most 366 days");
    if (errors.length > 0) return invalid(errors);
    if (tenants.length !== 1) return invalidField("tenant", `is missing: a silence belongs to one tenant, and you may choose from ${tenants.length}: ${tenants.join(", ")}`);
    const matchers = body.matchers.map((m) => ({ name: m.name, value: m.value, isRegex: m.isRegex ?? false, isEqual: m.isEqual ?? true }));
    const s = { id: randomUUID(), tenant: tenants[0], matchers: [{ name: "tenant", value: tenants[0], isRegex: false, isEqual: true }, ...matchers], startsAt, endsAt, createdBy: user, comment, maintenance: false };
    this.silences.push(s);
    return { status: 201, json: { id: s.id } };
  }

  expire(id, tenants) {
    const s = this.silences.find((x) => x.id === id && tenants.includes(x.tenant));
    if (!s) return notFound(`there is no silence "${id}"`);
    if (s.maintenance) return conflict("it comes from a maintenance window, which would make it anew; end the window instead");
    s.endsAt = Date.now();
    return { status: 204 };
  }

  windowsOf = (key) => this.windows.get(key) ?? [];

  putWindow(key, name, body) {
    const bad = checkBody(body, ["reason", "start", "schedule", "timeZone", "duration"]);
    if (bad) return bad;
    const errors = [];
    const say = (field, detail) => errors.push({ field, detail });
    const reason = String(body.reason ?? "").trim();
    if (!reason || reason.length > 200) say("reason", `want 1 to 200 characters, have ${reason.length}`);
    const ms = durationOf(body.duration);
    if (!(ms >= MINUTE && ms <= 168 * HOUR)) say("duration", `${JSON.stringify(body.duration ?? "")}: want 1m to 168h, such as 2h`);
    if (body.start && body.schedule) say("schedule", "want either start, for once, or schedule, for again and again");
    else if (!body.start && !body.schedule) say("start", "is missing: want a time, for once, or a schedule, for again and again");
    else if (body.start) {
      if (Number.isNaN(Date.parse(body.start))) say("start", "want RFC 3339");
      else if (Date.parse(body.start) + ms < Date.now()) say("start", "the window would be over already");
    } else if (body.schedule.trim().split(/\s+/).length !== 5 || !body.schedule.split(/\s+/).every(cronField)) say("schedule", `${JSON.stringify(body.schedule)}: want cron's five fields, such as "0 2 * * SUN"`);
    if (body.timeZone) {
      try {
        new Intl.DateTimeFormat("en", { timeZone: body.timeZone });
      } catch {
        say("timeZone", `${JSON.stringify(body.timeZone)}: want a name such as Europe/Berlin`);
      }
    }
    if (errors.length > 0) return invalid(errors);
    const have = this.windowsOf(key).filter((w) => w.name !== name);
    if (have.length >= 20) return conflict(`${key.split("/").at(-1)} has 20 maintenance windows already; delete one that is over`);
    this.windows.set(key, [...have, { name, reason, start: body.start ? iso(Date.parse(body.start)) : null, schedule: body.schedule ?? "", timeZone: body.timeZone ?? "", duration: goDuration(ms) }]);
    return undefined;
  }

  dropWindow(key, name) {
    const have = this.windowsOf(key);
    if (!have.some((w) => w.name === name)) return notFound(`${key.split("/").at(-1)} has no maintenance window "${name}"`);
    this.windows.set(key, have.filter((w) => w.name !== name));
    return { status: 204 };
  }
}

const NAMES = "SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC";
const cronField = (f) => new RegExp(`^(\\*|\\?|(\\d+|${NAMES})(-(\\d+|${NAMES}))?)(/\\d+)?(,((\\d+|${NAMES})(-(\\d+|${NAMES}))?)(/\\d+)?)*$`, "i").test(f);
