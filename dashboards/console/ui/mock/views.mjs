// Saved views of the inventory: the user's own and those that are shared, each of one tenant.

import { checkBody, conflict, invalidField, notFound } from "./check.mjs";

const MOST = 50;

export class MockViews {
  constructor() {
    this.views = [];
  }

  list(tenants) {
    const views = this.views.filter((v) => tenants.includes(v.tenant)).sort((a, b) => (a.name < b.name ? -1 : 1));
    return { json: { views, shareIn: tenants } };
  }

  put(name, q, tenant, body) {
    const bad = checkBody(body, ["query", "sort", "columns", "group"]);
    if (bad) return bad;
    if (name.length > 60 || name.includes("/") || name.trim() !== name || name === "") return invalidField("name", 'want 1 to 60 printable characters without "/", and no space at either end');
    const v = { name, tenant, shared: q.get("shared") === "true", query: body.query ?? "", sort: body.sort ?? "", columns: body.columns ?? [], group: body.group ?? "" };
    if (q.get("new") === "true" && this.views.some((o) => same(o, v))) return conflict(`there is a view "${name}" already; replace it, or choose another name`, { errors: [{ field: "name", detail: "there is one of that name" }] });
    const others = this.views.filter((o) => !same(o, v));
    if (others.filter((o) => o.tenant === tenant && o.shared === v.shared).length >= MOST) return conflict(`there are ${MOST} views already; delete one that nobody needs`);
    this.views = [...others, v];
    return { json: v };
  }

  drop(name, q, tenant) {
    const left = this.views.filter((o) => !same(o, { name, tenant, shared: q.get("shared") === "true" }));
    if (left.length === this.views.length) return notFound(`there is no view "${name}"`);
    this.views = left;
    return { status: 204 };
  }
}

const same = (a, b) => a.name === b.name && a.tenant === b.tenant && a.shared === b.shared;
