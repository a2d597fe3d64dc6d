// The pages by address. Each is a bundle of its own: who opens one does not wait for the others.

import { type ComponentType, useEffect, useState } from "react";
import { ProblemNote } from "./components/states";

type Params = Record<string, string>;
type Load = () => Promise<ComponentType<never>>;

export interface Route {
  path: string;
  Page: ComponentType<Params>;
  /** The page fills the window and scrolls inside. */
  fixed: boolean;
  /** Fetches the page's bundle, once. */
  load: () => Promise<unknown>;
}

/** A page that is fetched when it is first shown, with nothing below the bar meanwhile. */
function split(path: string, load: Load, { fixed = false } = {}): Route {
  let loaded: ComponentType<Params> | undefined;
  let loading: Promise<unknown> | undefined;
  const get = () =>
    (loading ??= load().then(
      (c) => (loaded = c as unknown as ComponentType<Params>),
      (e: unknown) => {
        loading = undefined; // to be tried again
        throw e;
      },
    ));
  function Page(params: Params) {
    const [Loaded, setLoaded] = useState(() => loaded);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (!Loaded) void get().then(() => setLoaded(() => loaded), () => setFailed(true));
    }, [Loaded]);
    if (Loaded) return <Loaded {...params} />;
    if (!failed) return null;
    return (
      <div className="page">
        {/* Of an older console, whose files are gone since the server was replaced; or the network is. */}
        <ProblemNote error="The server may have been replaced by a newer one since this window was opened, or can't be reached." doing="load this page" onRetry={() => location.reload()} />
      </div>
    );
  }
  return { path, Page, fixed, load: get };
}

export const ROUTES: readonly Route[] = [
  split("/", () => import("./pages/fleet").then((m) => m.FleetPage), { fixed: true }),
  split("/virtual-sites", () => import("./pages/virtual-sites").then((m) => m.VirtualSitesPage)),
  split("/virtual-sites/:namespace/:name", () => import("./pages/virtual-site").then((m) => m.VirtualSitePage)),
  split("/virtual-hosts", () => import("./pages/virtual-hosts").then((m) => m.VirtualHostsPage)),
  split("/virtual-hosts/:namespace/:name", () => import("./pages/virtual-host").then((m) => m.VirtualHostPage)),
  split("/load", () => import("./pages/load").then((m) => m.LoadPage)),
  split("/connectivity", () => import("./pages/connectivity").then((m) => m.ConnectivityPage)),
  split("/connectivity/:name", () => import("./pages/link").then((m) => m.LinkPage)),
  split("/sites", () => import("./pages/inventory").then((m) => m.InventoryPage), { fixed: true }),
  split("/sites/:name", () => import("./pages/site").then((m) => m.SitePage)),
  split("/sites/:name/score", () => import("./pages/score").then((m) => m.ScorePage)),
  split("/sites/:name/cost", () => import("./pages/site-cost").then((m) => m.SiteCostPage)),
  split("/sites/:name/signals/:signal", () => import("./pages/signal").then((m) => m.SignalPage)),
  split("/explore", () => import("./pages/explore").then((m) => m.ExplorePage)),
  split("/workloads", () => import("./pages/workloads").then((m) => m.WorkloadsPage)),
  split("/workloads/deploy", () => import("./pages/deploy").then((m) => m.DeployPage)),
  split("/workloads/:namespace/:vk8s/:kind/:name", () => import("./pages/workload").then((m) => m.WorkloadPage)),
  split("/workloads/:namespace/:vk8s/:kind/:name/pods/:pod/log", () => import("./pages/pod-log").then((m) => m.PodLogPage), { fixed: true }),
  split("/rollouts", () => import("./pages/rollouts").then((m) => m.RolloutsPage)),
  split("/rollouts/:namespace/:name", () => import("./pages/rollout").then((m) => m.RolloutPage)),
  split("/cost", () => import("./pages/cost").then((m) => m.CostPage)),
  split("/alerts", () => import("./pages/alerts").then((m) => m.AlertsPage)),
  split("/alerts/:fingerprint", () => import("./pages/alert").then((m) => m.AlertPage)),
  split("/runbooks/:name", () => import("./pages/runbook").then((m) => m.RunbookPage)),
  split("/timeline", () => import("./pages/timeline").then((m) => m.TimelinePage)),
  split("/logs", () => import("./pages/logs").then((m) => m.LogsPage), { fixed: true }),
  split("/registrations", () => import("./pages/registrations").then((m) => m.RegistrationsPage)),
  split("/policies", () => import("./pages/policies").then((m) => m.PoliciesPage)),
  split("/policies/:name", () => import("./pages/policy").then((m) => m.PolicyPage)),
  split("/tenants", () => import("./pages/tenants").then((m) => m.TenantsPage)),
];

const partsOf = (path: string): string[] => path.toLowerCase().split("/").filter(Boolean);

/** The route of an address, as the router takes addresses: in any case, with or without a slash at the end. */
export function routeOf(pathname: string): Route | undefined {
  const parts = partsOf(pathname);
  return ROUTES.find((r) => {
    const want = partsOf(r.path);
    return want.length === parts.length && want.every((w, i) => w.startsWith(":") || w === parts[i]);
  });
}

/** Fetches the pages that were not shown yet, one after the other, while the browser has nothing else to do. */
export function loadOthers(): void {
  const idle = typeof requestIdleCallback === "function" ? requestIdleCallback : (f: () => void) => setTimeout(f, 200);
  const left = [...ROUTES];
  const next = () => {
    const r = left.shift();
    if (r) idle(() => void r.load().then(next, () => undefined));
  };
  next();
}
