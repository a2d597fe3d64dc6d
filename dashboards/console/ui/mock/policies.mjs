// The health policies of the invented fleet as they were written, and trials of edits.

import { conflict, invalidField, notFound } from "./check.mjs";
import { metricOf, SIGNALS } from "./fleet.mjs";

const spec = () => ({
  siteSelector: {}, priority: 0, weights: { security: "500m" }, worstShare: "500m", evaluations: 2, recoveryEvaluations: 4,
  packs: [{ name: "gpu", when: "count by (tenant, site) (DCGM_FI_DEV_GPU_TEMP) > 0" }],
  overrides: [{ sites: ["paris-07"], virtualSites: ["shared/apac"], signals: [{ name: "disk-used", bad: "98" }, { name: "reboot-required", ignore: true }], reason: "old disks, replaced in March", until: "2099-03-31T00:00:00Z" }],
  signals: SIGNALS.map((g) => ({
    name: g.name, dimension: g.dimension, query: `max by (tenant, site) (${metricOf(g.name)})`, good: String(g.good), bad: String(g.bad), weight: String(g.weight), critical: g.critical || undefined,
    pack: g.pack || undefined, unit: g.unit || undefined, text: g.text, source: g.source,
  })),
});

const outcome = (v) => ({ score: v.score, colour: v.colour, reason: v.reasons[0]?.text ?? "" });

export class MockPolicies {
  constructor(fleet) {
    this.fleet = fleet;
  }

  detail(name, tenants) {
    const found = this.fleet.policies().filter((p) => p.name === name && tenants.includes(p.tenant));
    // The shipped one is whose no tenant's is: here as if that were acme's too.
    if (found.length === 0 && name === "shipped") return { json: { asOf: this.fleet.asOf, policy: { ...this.fleet.policies()[0], tenant: "", name }, spec: spec() } };
    if (found.length === 0) return notFound(`no health policy "${name}" that you may read; GET /api/v1/health/policies lists those there are`);
    if (found.length > 1) {
      const p = conflict(`several tenants have a health policy "${name}"; say which with tenant=`);
      p.problem.tenants = found.map((x) => x.tenant);
      return p;
    }
    return { json: { asOf: this.fleet.asOf, policy: found[0], spec: spec() } };
  }

  try(tenant, body, late) {
    const bad = check(body);
    if (bad) return bad;
    const rehearsed = this.rehearse(tenant, body);
    const { signals } = rehearsed;
    const all = rehearsed.all.filter((r) => !late.has(this.fleet.sites.get(`${tenant}/${r.site}`).region));
    const results = all.filter((r) => r.before.score !== r.after.score || r.before.colour !== r.after.colour);
    const recolours = (r) => Number(r.before.colour !== r.after.colour);
    results.sort((a, b) => recolours(b) - recolours(a) || a.after.score - a.before.score - (b.after.score - b.before.score));
    return { json: { asOf: this.fleet.asOf, tenant, policy: body.metadata.name, sites: all.length, changed: results.filter(recolours).length, results, omitted: 0, signals, missingRegions: [...late].map((region) => ({ region, reason: "has not answered yet", late: true })), waiting: rehearsed.all.length - all.length } };
  }

  replay(tenant, body, cursor) {
    const bad = check(body);
    if (bad) return bad;
    const { all, signals } = this.rehearse(tenant, body);
    const [from, step, to] = [Number(cursor ?? 0), 50, new Date()];
    const at = new Date(to - 5 * 3600_000).toISOString();
    const sites = all.slice(from, from + step).map((r) => {
      const differs = r.before.colour !== r.after.colour;
      return { site: r.site, would: differs ? [{ at, from: r.before.colour, to: r.after.colour, reason: r.after.reason }] : [], did: [], last: r.after, differs };
    });
    const done = Math.min(all.length, from + step);
    return { json: { from: new Date(to - 86_400_000).toISOString(), to: to.toISOString(), tenant, policy: body.metadata.name, stepSeconds: 60, sites, done, total: all.length, signals, ...(done < all.length ? { nextCursor: String(done) } : {}) } };
  }

  rehearse(tenant, body) {
    const by = new Map(body.spec.signals.map((s) => [s.name, s]));
    const signals = SIGNALS.filter((g) => by.has(g.name)).map((g) => ({ ...g, good: Number(by.get(g.name).good), bad: Number(by.get(g.name).bad), weight: Number(by.get(g.name).weight ?? 1) }));
    const sites = [...this.fleet.sites.values()].filter((s) => s.tenant === tenant);
    const all = sites.map((s) => {
      const copy = { ...s };
      this.fleet.score(copy, Date.now(), signals);
      return { site: s.name, before: outcome(s.view), after: outcome(copy.view) };
    });
    return { all, signals: signals.map((g) => ({ name: g.name, dimension: g.dimension, error: "", sitesKnown: sites.length })) };
  }
}

const check = (b) =>
  b?.kind !== "HealthPolicy" ? invalidField("kind", "want HealthPolicy") : !b.metadata?.name ? invalidField("metadata.name", "must not be empty") : !b.spec?.signals?.length ? invalidField("spec.signals", "want 1 to 100 signals") : undefined;
