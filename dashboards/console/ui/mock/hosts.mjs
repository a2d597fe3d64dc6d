// The virtual hosts of the mock, and what its sites measure of them: figures that stay the
// same. The real ones are dashboards/console/virtualhosts.go and control/agent/hosts.

const HOUR = 3600_000;
const seedOf = (text) => [...text].reduce((n, c) => (Math.imul(n, 31) + c.charCodeAt(0)) | 0, 7) >>> 0;
const NO_PROVIDER = "eu-1.example:7443: no site that serves shop/stock answers; site boston-04: service stock: connection refused";

const HOSTS = [
  { tenant: "acme", namespace: "shop", name: "prices", service: "price-list", servicePort: 80, routes: [["api.example.com", "/", "price-api"], ["", "/offers", "offers"]], virtualSite: "shared/old-hardware", policies: [["stores", ["shared/all-eu"]], ["pilots", ["shared/americas", "shop/kiosks"], "there is no virtual site shop/kiosks; the others count"]] },
  { tenant: "acme", namespace: "shop", name: "stock", host: "stock-global", service: "stock", servicePort: 5432, virtualSite: "shared/canary", fails: true, policies: [["stock-in-europe", ["shared/all-eu"]]] },
  { tenant: "acme", namespace: "shop", name: "ledger", service: "ledger-db", servicePort: 5432, virtualSite: "shared/canary", policies: [] },
  { tenant: "globex", namespace: "shop", name: "queue", host: "queue-global", service: "queue", servicePort: 4222, virtualSite: "shared/canary", policies: [["all", ["shared/all-eu"]]] },
];

export class MockHosts {
  constructor(fleet) {
    this.fleet = fleet;
    this.hosts = HOSTS;
  }

  members(tenant, virtual) {
    return [...this.fleet.sites.values()].filter((s) => s.tenant === tenant && s.view.virtualSites.some((v) => virtual.includes(v))).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  consumers(h) {
    return this.members(h.tenant, h.policies.flatMap(([, v]) => v));
  }

  list(tenants) {
    const online = (sites) => sites.filter((s) => s.phase === "Online" && !s.unknown).length;
    const view = (h) => {
      const [providers, consumers] = [this.members(h.tenant, [h.virtualSite]), this.consumers(h)];
      const host = h.host ?? h.name;
      const advertised = h.policies.length > 0;
      const reason = !advertised ? "NotAdvertised" : providers.length === 0 ? "NoProvider" : online(providers) === 0 ? "NoProviderOnline" : "Reachable";
      const message = { NotAdvertised: `no site may reach it: make an AdvertisePolicy with spec.virtualHost ${h.name} and virtual sites that have members`, NoProvider: `the virtual site ${h.virtualSite} has no members, or does not exist`, NoProviderOnline: `none of the ${providers.length} sites that serve it is connected`, Reachable: `reached as ${host}:${h.servicePort} on ${consumers.length} sites; ${online(providers)} of ${providers.length} sites that serve it are connected` }[reason];
      return {
        tenant: h.tenant, namespace: h.namespace, name: h.name, host, port: advertised ? h.servicePort : 0, service: h.service, servicePort: h.servicePort, protocol: h.routes ? "HTTP" : "TCP", routes: (h.routes ?? []).map(([host, path, service]) => ({ host, path, service, servicePort: 80 })), virtualSite: h.virtualSite,
        providers: providers.length, providersOnline: online(providers), consumers: consumers.length, createdAt: new Date(Date.now() - 20 * 24 * HOUR).toISOString(), ready: reason === "Reachable", reason, message,
        policies: h.policies.map(([name, virtualSites, fault = ""]) => ({ name, virtualSites, sites: this.members(h.tenant, virtualSites).length, fault })),
      };
    };
    return { json: { virtualHosts: this.hosts.filter((h) => tenants.includes(h.tenant)).map(view) } };
  }

  /** The links of a tenant's hosts, as [host, from, to, connections, bytes a second]. */
  links(tenant) {
    return this.hosts.filter((h) => h.tenant === tenant && !h.fails).flatMap((h) => {
      const providers = this.members(tenant, [h.virtualSite]).filter((s) => s.phase === "Online");
      return this.consumers(h).filter((s) => s.phase === "Online" && providers.length > 0).map((s) => {
        const n = seedOf(h.name + s.name);
        const to = providers.find((p) => p.name === s.name) ?? providers[n % providers.length];
        return { host: `${h.namespace}/${h.name}`, site: s.name, peer: to.name, open: n % 4, bytes: n % 4 === 0 ? 0 : 400 + (n % 90_000) };
      });
    });
  }

  /** Sites that could not reach a host. */
  failing(tenant) {
    return this.hosts.filter((h) => h.tenant === tenant && h.fails).flatMap((h) => this.consumers(h).filter((s) => s.phase === "Online").map((s) => ({ host: `${h.namespace}/${h.name}`, site: s.name, n: 1 + (seedOf(s.name) % 40) })));
  }

  /** The series of an expression over metrics of hosts, as [labels, value]. */
  series(query, tenant) {
    const host = /host="([^"]+)"/.exec(query)?.[1];
    const only = /site=~?"([^"]+)"/.exec(query)?.[1]?.split("|");
    const labels = /by \(([^)]*)\)/.exec(query)?.[1].split(", ") ?? [];
    const failed = query.includes('result!="ok"');
    const fits = (x) => (!host || x.host === host) && (!only || only.includes(x.site));
    const ends = this.links(tenant).flatMap((l) => [{ ...l, direction: "out" }, ...(query.includes('direction="out"') || l.peer === l.site ? [] : [{ ...l, site: l.peer, peer: l.site, direction: "in" }])]).filter(fits);
    const bad = this.failing(tenant).filter(fits).map((f) => ({ ...f, direction: "out" }));
    const value = (x) => (query.includes("attempts_total") ? (x.n ?? (failed ? 0 : 12 + (x.bytes % 200))) : /^(count\()?sum by \([^)]*\) \(muster_agent_host_connections/.test(query) ? x.open : x.bytes);
    const of = query.includes("attempts_total") ? (failed ? bad : [...ends, ...bad]) : ends;
    const sums = new Map();
    for (const x of of) {
      const key = JSON.stringify(Object.fromEntries(labels.map((l) => [l, x[l]])));
      sums.set(key, (sums.get(key) ?? 0) + value(x));
    }
    if (query.startsWith("count(")) return [[{}, sums.size]];
    const all = [...sums].map(([key, v]) => [JSON.parse(key), v]);
    return query.includes("topk(50") ? all.sort((a, b) => b[1] - a[1]).slice(0, 50) : all;
  }

  /** What a site says of its last attempts. */
  condition(s) {
    const fails = this.failing(s.tenant).some((f) => f.site === s.name);
    return fails ? [{ type: "VirtualHostReachable", status: "False", reason: "Unreachable", message: `shop/stock: ${NO_PROVIDER}`, lastTransitionTime: new Date(Date.now() - 0.4 * HOUR).toISOString() }] : [];
  }
}
