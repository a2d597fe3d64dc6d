import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useEffect } from "react";
import { Route, Switch } from "wouter";
import { api, onUnauthorized, Problem, sessionLives } from "./api/client";
import { keys } from "./api/keys";
import { startLive } from "./api/live";
import { retry } from "./api/queries";
import type { Session } from "./api/types";
import { Palette } from "./components/palette";
import { Boundary } from "./components/boundary";
import { loginFault, tokenOfHash } from "./lib/token";
import { useStore } from "./lib/store";
import { AlertPage } from "./pages/alert";
import { AlertsPage } from "./pages/alerts";
import { ConnectivityPage } from "./pages/connectivity";
import { CostPage } from "./pages/cost";
import { DeployPage } from "./pages/deploy";
import { ExplorePage } from "./pages/explore";
import { FleetPage } from "./pages/fleet";
import { InventoryPage } from "./pages/inventory";
import { LinkPage } from "./pages/link";
import { LoadPage } from "./pages/load";
import { LoginPage } from "./pages/login";
import { LogsPage } from "./pages/logs";
import { NotFoundPage } from "./pages/not-found";
import { PodLogPage } from "./pages/pod-log";
import { PoliciesPage } from "./pages/policies";
import { PolicyPage } from "./pages/policy";
import { RegistrationsPage } from "./pages/registrations";
import { RolloutPage } from "./pages/rollout";
import { RolloutsPage } from "./pages/rollouts";
import { RunbookPage } from "./pages/runbook";
import { ScorePage } from "./pages/score";
import { SignalPage } from "./pages/signal";
import { SitePage } from "./pages/site";
import { SiteCostPage } from "./pages/site-cost";
import { TenantsPage } from "./pages/tenants";
import { TimelinePage } from "./pages/timeline";
import { VirtualHostPage } from "./pages/virtual-host";
import { VirtualHostsPage } from "./pages/virtual-hosts";
import { VirtualSitePage } from "./pages/virtual-site";
import { VirtualSitesPage } from "./pages/virtual-sites";
import { WorkloadPage } from "./pages/workload";
import { WorkloadsPage } from "./pages/workloads";
import { zone } from "./lib/zone";
import { auth, endSession } from "./session";

const client = new QueryClient({
  defaultOptions: { queries: { retry, retryDelay: 800, staleTime: 5000, refetchOnWindowFocus: false }, mutations: { retry: false } },
});

let confirming = false;

// Another request, to another console, may have renewed the session this moment: one
// refusal alone doesn't end it.
onUnauthorized(() => {
  if (auth.get().state !== "in") return endSession(client, "");
  if (confirming) return;
  confirming = true;
  void sessionLives()
    .then((lives) => {
      if (!lives) endSession(client, "Your session has ended. Log in again to go on where you were.");
    })
    .finally(() => (confirming = false));
});

/** Logs in by the link's token if there is one; else finds out whether there is a session. */
async function begin(): Promise<void> {
  const token = tokenOfHash(location.hash);
  const fault = loginFault(location.hash);
  if (fault) history.replaceState(history.state, "", location.pathname + location.search);
  if (token) {
    // First of all: neither the history nor a copied address may hold the token.
    history.replaceState(history.state, "", location.pathname + location.search);
    try {
      await api<void>("POST", "/api/v1/session", { body: { token } });
    } catch (e) {
      const p = e instanceof Problem ? e.detail || e.title : String(e);
      auth.set({ state: "out", message: `The link's token was not accepted: ${p}` });
      return;
    }
  }
  try {
    client.setQueryData(keys.session, await api<Session>("GET", "/api/v1/session"));
    auth.set({ state: "in" });
  } catch (e) {
    if (e instanceof Problem && e.status === 401) auth.set({ state: "out", message: fault });
    else auth.set({ state: "out", message: e instanceof Problem ? e.detail || e.title : String(e) });
  }
}

let begun = false;

export function App() {
  useEffect(() => {
    if (!begun) {
      begun = true;
      void begin();
    }
    // A login link that is opened in a tab that already shows the console.
    const onHash = () => {
      if (tokenOfHash(location.hash)) void begin();
    };
    window.addEventListener("hashchange", onHash);
    return () => window.removeEventListener("hashchange", onHash);
  }, []);
  return (
    <QueryClientProvider client={client}>
      <Boundary>
        <Gate />
      </Boundary>
    </QueryClientProvider>
  );
}

function Gate() {
  const state = useStore(auth);
  const isIn = state.state === "in";
  const inZone = useStore(zone);
  useEffect(() => (isIn ? startLive(client) : undefined), [isIn]);
  if (state.state === "unknown") return null;
  if (state.state === "out") return <LoginPage message={state.message} />;
  return (
    <>
    <Palette />
    <Switch key={inZone}>
      <Route path="/" component={FleetPage} />
      <Route path="/virtual-sites" component={VirtualSitesPage} />
      <Route path="/virtual-sites/:namespace/:name">{(p) => <VirtualSitePage namespace={p.namespace} name={p.name} />}</Route>
      <Route path="/virtual-hosts" component={VirtualHostsPage} />
      <Route path="/virtual-hosts/:namespace/:name">{(p) => <VirtualHostPage namespace={p.namespace} name={p.name} />}</Route>
      <Route path="/load">
        <LoadPage />
      </Route>
      <Route path="/connectivity" component={ConnectivityPage} />
      <Route path="/connectivity/:name">{(p) => <LinkPage name={p.name} />}</Route>
      <Route path="/sites" component={InventoryPage} />
      <Route path="/sites/:name">{(p) => <SitePage name={p.name} />}</Route>
      <Route path="/sites/:name/score">{(p) => <ScorePage name={p.name} />}</Route>
      <Route path="/sites/:name/cost">{(p) => <SiteCostPage name={p.name} />}</Route>
      <Route path="/sites/:name/signals/:signal">{(p) => <SignalPage name={p.name} signal={p.signal} />}</Route>
      <Route path="/explore" component={ExplorePage} />
      <Route path="/workloads" component={WorkloadsPage} />
      <Route path="/workloads/deploy" component={DeployPage} />
      <Route path="/workloads/:namespace/:vk8s/:kind/:name">{(p) => <WorkloadPage {...p} />}</Route>
      <Route path="/workloads/:namespace/:vk8s/:kind/:name/pods/:pod/log">{(p) => <PodLogPage {...p} />}</Route>
      <Route path="/rollouts" component={RolloutsPage} />
      <Route path="/rollouts/:namespace/:name">{(p) => <RolloutPage {...p} />}</Route>
      <Route path="/cost" component={CostPage} />
      <Route path="/alerts" component={AlertsPage} />
      <Route path="/runbooks/:name">{(p) => <RunbookPage name={p.name} />}</Route>
      <Route path="/alerts/:fingerprint">{(p) => <AlertPage fingerprint={p.fingerprint} />}</Route>
      <Route path="/timeline" component={TimelinePage} />
      <Route path="/logs" component={LogsPage} />
      <Route path="/registrations" component={RegistrationsPage} />
      <Route path="/policies" component={PoliciesPage} />
      <Route path="/policies/:name">{(p) => <PolicyPage name={p.name} />}</Route>
      <Route path="/tenants" component={TenantsPage} />
      <Route component={NotFoundPage} />
    </Switch>
    </>
  );
}
