// AlertRules, as the console makes them: unknown fields, names that are none, a name that is taken and expressions that
// Prometheus would not take are refused.

import { checkBody, conflict, forbidden, invalid, invalidField, notFound } from "./check.mjs";

const NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const FIELDS = {
  spec: ["engine", "groups"],
  group: ["name", "interval", "query_offset", "limit", "labels", "rules"],
  rule: ["alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations"],
};

export class MockRules {
  constructor() {
    this.made = new Map();
  }

  make(tenant, body, user, lacks) {
    const bad = checkBody(body, ["name", "spec", "dryRun"]);
    if (bad) return bad;
    if (typeof body.name !== "string" || !NAME.test(body.name)) return invalidField("name", `${JSON.stringify(body.name)}: want lower-case letters, digits, '-' or '.', such as site-cpu-high`);
    if (!body.spec) return invalidField("spec", "is missing: want groups of rules, as in the spec of AlertRules");
    if (lacks) return forbidden(`make the alert rules: alertrules.muster.dev is forbidden: User "${user}" cannot create resource "alertrules" in API group "muster.dev" in the namespace "${tenant}-system"`);
    const errors = faultsOf(body.spec);
    if (errors.length > 0) return invalid(errors);
    const key = `${tenant}/${body.name}`;
    if (this.made.has(key)) return conflict(`${tenant}-system has AlertRules ${body.name} already; choose another name`, { errors: [{ field: "name", detail: `${tenant}-system has AlertRules of that name already; choose another` }] });
    const o = { tenant, name: body.name, at: Date.now(), spec: body.spec };
    if (!body.dryRun) this.made.set(key, o);
    return { status: body.dryRun ? 200 : 201, json: view(o, true) };
  }

  get(tenant, name) {
    const o = this.made.get(`${tenant}/${name}`);
    return o ? { json: view(o, false) } : notFound(`read the alert rules: alertrules.muster.dev "${name}" not found`);
  }
}

const strange = (at, o, known) => Object.keys(o ?? {}).filter((k) => !known.includes(k)).map((k) => ({ field: `${at}.${k}`, detail: "unknown field" }));

function faultsOf(spec) {
  const out = strange("spec", spec, FIELDS.spec);
  if (!Array.isArray(spec.groups) || spec.groups.length === 0) return [...out, { field: "spec.groups", detail: "should have at least 1 items" }];
  spec.groups.forEach((g, i) => {
    const at = `spec.groups[${i}]`;
    out.push(...strange(at, g, FIELDS.group));
    if (!g.name) out.push({ field: `${at}.name`, detail: "should be at least 1 chars long" });
    (g.rules ?? []).forEach((r, j) => out.push(...strange(`${at}.rules[${j}]`, r, FIELDS.rule), ...ruleFaults(`${at}.rules[${j}]`, r)));
  });
  return out;
}

function ruleFaults(at, r) {
  const out = [];
  if (!r.alert === !r.record) out.push({ field: at, detail: "want either alert or record" });
  if (typeof r.expr !== "string" || r.expr.length > 10_000 || r.expr.split("(").length !== r.expr.split(")").length || /[-+*/<>=]\s*$/.test(r.expr) || r.expr.trim() === "") out.push({ field: `${at}.expr`, detail: "parse error: unexpected end of input" });
  if (r.for !== undefined && !/^\d+[smhd]$/.test(r.for)) out.push({ field: at, detail: `for: not a valid duration string: ${JSON.stringify(r.for)}` });
  return out;
}

/** Nobody has looked at what is new; then every regional has it. */
const view = (o, fresh) => ({ tenant: o.tenant, name: o.name, createdAt: new Date(o.at).toISOString(), rules: fresh ? 0 : o.spec.groups.reduce((n, g) => n + g.rules.length, 0), regionals: fresh ? 0 : 2, applied: fresh ? "Unknown" : "True", message: fresh ? "" : "in effect on every regional" });
