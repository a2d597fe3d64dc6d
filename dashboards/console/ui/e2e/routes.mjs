// An address of each route, in the mock's fleet and mostly in any: what axe is asked about (access.spec.ts) and what
// pictures are taken of (shots.mjs). src/pages.test.ts fails where a route has none.

/** The site with the most reasons, of those of the first page. */
async function worst(get) {
  const { sites } = await get("/api/v1/health/sites?limit=1000");
  return sites.sort((a, b) => b.reasons.length - a.reasons.length)[0];
}

const siteAddress = (before, after = "") => async (get) => {
  const s = await worst(get);
  return `${before}/${s.name}${after}?tenant=${s.tenant}`;
};

const CHECKOUT = "/workloads/shop/vk8s/Deployment.apps/checkout";

/** By route: what its page is called, and its address; get asks the API. */
export const EXAMPLES = {
  "/": { name: "fleet", address: () => "/" },
  "/virtual-sites": { name: "virtual-sites", address: () => "/virtual-sites" },
  "/virtual-sites/:namespace/:name": {
    name: "virtual-site",
    address: async (get) => {
      const v = (await get("/api/v1/health/virtualsites")).virtualSites[0];
      return `/virtual-sites/${v.namespace}/${v.name}?tenant=${v.tenant}`;
    },
  },
  "/virtual-hosts": { name: "virtual-hosts", address: () => "/virtual-hosts" },
  "/virtual-hosts/:namespace/:name": { name: "virtual-host", address: () => "/virtual-hosts/shop/prices?tenant=acme" },
  "/load": { name: "load", address: () => "/load" },
  "/connectivity": { name: "connectivity", address: () => "/connectivity" },
  "/connectivity/:name": { name: "link", address: siteAddress("/connectivity") },
  "/sites": { name: "sites", address: () => "/sites" },
  "/sites/:name": { name: "site", address: siteAddress("/sites") },
  "/sites/:name/score": { name: "score", address: siteAddress("/sites", "/score") },
  "/sites/:name/cost": { name: "site-cost", address: siteAddress("/sites", "/cost") },
  "/sites/:name/signals/:signal": { name: "signal", address: siteAddress("/sites", "/signals/disk-used") },
  "/explore": { name: "explore", address: () => "/explore?tenant=acme&query=node_load1" },
  "/workloads": { name: "workloads", address: () => "/workloads" },
  "/workloads/deploy": { name: "deploy", address: () => "/workloads/deploy?tenant=acme&in=shop%2Fvk8s" },
  "/workloads/:namespace/:vk8s/:kind/:name": { name: "workload", address: () => `${CHECKOUT}?tenant=acme` },
  "/workloads/:namespace/:vk8s/:kind/:name/pods/:pod/log": {
    name: "pod-log",
   
    address: async (get) => `${CHECKOUT}/pods/${(await get("/api/v1/vk8s/shop/vk8s/workloads/Deployment.apps/checkout/pods?tenant=acme")).pods[0].name}/log?tenant=acme`,
  },
  "/rollouts": { name: "rollouts", address: () => "/rollouts" },
  "/rollouts/:namespace/:name": { name: "rollout", address: () => "/rollouts/shop/web-5b21c9d0?tenant=acme" },
  "/cost": { name: "cost", address: () => "/cost" },
  "/alerts": { name: "alerts", address: () => "/alerts" },
  "/alerts/:fingerprint": {
    name: "alert",
   
    address: async (get) => {
      const a = (await get("/api/v1/alerts?limit=1")).alerts[0];
      return `/alerts/${a.fingerprint}?tenant=${a.tenant}`;
    },
  },
  "/runbooks/:name": { name: "runbook", address: () => "/runbooks/SiteUnhealthy" },
  "/timeline": { name: "timeline", address: () => "/timeline" },
  "/logs": { name: "logs", address: () => "/logs" },
  "/registrations": { name: "registrations", address: () => "/registrations" },
  "/policies": { name: "policies", address: () => "/policies" },
  "/policies/:name": { name: "policy", address: () => "/policies/default?tenant=acme" },
  "/tenants": { name: "tenants", address: () => "/tenants" },
};
