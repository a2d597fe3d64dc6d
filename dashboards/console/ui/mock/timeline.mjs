// An invented timeline for the mock: what its faults, silences and rollouts would have
// left, over some days.

import { createHash } from "node:crypto";
import { invalidField, listOf } from "./check.mjs";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const KINDS = ["colour", "alert", "notification", "silence", "maintenance", "registration", "connection", "policy", "rollout", "software"];

export class MockTimeline {
  constructor(fleet, alerts) {
    this.missing = false;
    this.events = [];
    const now = fleet.started;
    const add = (e) => this.add(e);
    const of = (s) => ({ tenant: s.tenant, site: s.name, virtualSites: s.view.virtualSites, link: `/sites/${s.name}?tenant=${s.tenant}` });
    for (const a of alerts.alerts(now)) {
      const at = Date.parse(a.startsAt);
      const where = a.site ? { site: a.site } : {};
      add({ time: at, kind: "alert", severity: a.severity, tenant: a.tenant, ...where, virtualSites: a.virtualSites, object: `Alert/${a.name}`, text: `${a.name} fires: ${a.annotations.summary}`, after: a.severity, link: `/alerts/${a.fingerprint}?tenant=${a.tenant}` });
      if (a.severity === "critical" && a.state === "active") add({ time: at + 35_000, kind: "notification", tenant: a.tenant, ...where, virtualSites: a.virtualSites, object: "Receiver/on-call", text: `on-call was notified by webhook: ${a.name}`, after: "sent", link: `/alerts/${a.fingerprint}?tenant=${a.tenant}` });
    }
    let n = 0;
    for (const s of fleet.sites.values()) {
      const is = s.view.colour;
      n++;
      if (is === "red" || is === "orange") add({ time: now - (n % 40) * 7 * MINUTE, kind: "colour", severity: is === "red" ? "critical" : "warning", ...of(s), text: `green → ${is}, score ${Math.round(s.view.score ?? 0)}: ${s.view.reasons[0]?.text ?? "no reason is known"}`, before: "green", after: is });
      if (n % 5 === 0) {
        add({ time: now - 26 * HOUR - n * MINUTE, kind: "connection", severity: "warning", ...of(s), text: "not connected any more; it was on regional eu-1", before: "Online", after: "Offline" });
        add({ time: now - 25.5 * HOUR - n * MINUTE, kind: "connection", severity: "good", ...of(s), text: "connected to regional eu-1", before: "Offline", after: "Online" });
        add({ time: now - 50 * HOUR + (n % 2000) * MINUTE, kind: "software", ...of(s), object: `Versions/${s.name}`, text: "agent 1.4.2 → 1.5.0; kernel 6.1.0-25 → 6.1.0-28", before: "1.4.2", after: "1.5.0" });
      }
      if (n % 9 === 0) add({ time: now - 51 * HOUR + (n % 2000) * MINUTE, kind: "rollout", severity: "good", ...of(s), namespace: "shop", object: "Rollout/web-5b21c9d0", text: "rollout shop/web-5b21c9d0: its wave has passed", after: "passed", link: "/rollouts/shop/web-5b21c9d0?tenant=acme" });
      if (s.maintenance) add({ time: now - HOUR, kind: "maintenance", ...of(s), by: "ada@example.com", text: `maintenance: ${s.maintenance.reason}`, after: "maintenance" });
    }
    if (n > 0) {
      add({ time: now - 3 * HOUR, kind: "policy", object: "HealthPolicy/strict", by: "grace@example.com", text: "HealthPolicy strict was edited: signals, siteSelector", after: "edited", link: "/policies?tenant=acme" });
      add({ time: now - 27 * HOUR, kind: "policy", namespace: "shared", object: "VirtualSite/all-eu", virtualSites: ["shared/all-eu"], by: "ada@example.com", text: "VirtualSite shared/all-eu was edited: siteSelector", after: "edited", link: "/virtual-sites/shared/all-eu?tenant=acme" });
      add({ time: now - 2 * HOUR, kind: "silence", object: "Silence/1", by: "ada@example.com", text: `silenced until ${new Date(now + 5 * HOUR).toISOString().slice(0, 16).replace("T", " ")} UTC: alertname="PodCrashLooping" (known, the vendor looks at it: OPS-4802)`, after: "silenced", link: "/alerts?tenant=acme" });
      add({ time: now - 49 * HOUR, kind: "rollout", severity: "warning", namespace: "shop", object: "Rollout/web-5b21c9d0", virtualSites: ["shared/all-eu"], by: "grace@example.com", text: "rollout shop/web-5b21c9d0: paused", after: "Paused", link: "/rollouts/shop/web-5b21c9d0?tenant=acme" });
    }
    this.sort();
  }

  add(e) {
    const time = Math.round(e.time);
    const id = BigInt(time * 1_000_000).toString(16).padStart(16, "0") + KINDS.indexOf(e.kind).toString(16).padStart(2, "0") + createHash("sha256").update(JSON.stringify(e)).digest("hex").slice(0, 14);
    this.events.push({ severity: "info", tenant: "acme", ...e, id, time: new Date(time).toISOString() });
  }

  sort() {
    this.events.sort((a, b) => (a.id < b.id ? 1 : -1));
  }

  list(q, tenants) {
    const at = (name) => {
      const s = q.get(name);
      return !s ? NaN : /^\d+$/.test(s) ? Number(s) * 1000 : Date.parse(s);
    };
    const sites = listOf(q, "site");
    const virtual = listOf(q, "virtualSite").map((v) => (v.includes("/") ? v : `shared/${v}`));
    const kinds = listOf(q, "kind");
    const from = at("from");
    const to = at("to");
    const lost = this.missing ? ["alert", "notification", "silence"] : [];
    const all = this.events.filter((e) => {
      const t = Date.parse(e.time);
      return tenants.includes(e.tenant) && !lost.includes(e.kind) && (sites.length === 0 || sites.includes(e.site)) && (virtual.length === 0 || virtual.some((v) => e.virtualSites?.includes(v))) && (kinds.length === 0 || kinds.includes(e.kind)) && !(t < from) && !(t >= to);
    });
    const start = q.get("cursor") ? all.findIndex((e) => e.id === q.get("cursor")) + 1 : 0;
    if (q.get("cursor") && start === 0) return invalidField("cursor", "it is none of this list; begin without one");
    const limit = Number(q.get("limit") || 100);
    const events = all.slice(start, start + limit);
    return { json: { events, ...(start + limit < all.length ? { nextCursor: events.at(-1).id } : {}), ...(lost.length ? { missing: [
      { role: "alerting", at: "one:9107", kinds: lost, reason: "alerting: no answer in time", late: true },
      { role: "alerting", at: "two:9107", kinds: lost, reason: "alerting: connection refused" },
    ] } : {}) } };
  }
}
