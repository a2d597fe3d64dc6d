import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useEffect } from "react";
import { Route, Switch, useLocation } from "wouter";
import { api, onUnauthorized, Problem, sessionLives } from "./api/client";
import { keys } from "./api/keys";
import { startLive } from "./api/live";
import { retry } from "./api/queries";
import type { Session } from "./api/types";
import { Palette } from "./components/palette";
import { Boundary } from "./components/boundary";
import { Shell } from "./components/shell";
import { loginFault, tokenOfHash } from "./lib/token";
import { useStore } from "./lib/store";
import { LoginPage } from "./pages/login";
import { NotFoundPage } from "./pages/not-found";
import { loadOthers, routeOf, ROUTES } from "./pages";
import { zone } from "./lib/zone";
import { auth, endSession } from "./session";

const client = new QueryClient({
  defaultOptions: { queries: { retry, retryDelay: 800, staleTime: 5000, refetchOnWindowFocus: false }, mutations: { retry: false } },
});

/** When the bundles of pages that are not shown are fetched: after what is shown has come. */
const OTHERS_MS = 5000;

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
export async function begin(): Promise<void> {
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

export function App() {
  useEffect(() => {
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
  const [location] = useLocation();
  useEffect(() => (isIn ? startLive(client) : undefined), [isIn]);
  useEffect(() => {
    if (!isIn) return;
    const later = setTimeout(loadOthers, OTHERS_MS);
    return () => clearTimeout(later);
  }, [isIn]);
  if (state.state === "out") return <LoginPage message={state.message} />;
  return (
    <>
      <Palette />
      {/* Above the pages: what is open in the bar stays so while a page comes. */}
      <Shell fixed={routeOf(location)?.fixed ?? false}>
        <Switch key={inZone}>
          {ROUTES.map(({ path, Page }) => (
            <Route key={path} path={path}>
              {(params) => <Page {...params} />}
            </Route>
          ))}
          <Route component={NotFoundPage} />
        </Switch>
      </Shell>
    </>
  );
}
