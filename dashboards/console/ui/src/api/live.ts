// Follows the stream while somebody is logged in: it tells which sites changed, and what is
// shown of them is asked for anew; after each reconnect everything is.

import type { Query, QueryClient } from "@tanstack/react-query";
import { headline, siteKey } from "../lib/site";
import { Store } from "../lib/store";
import { parseTime } from "../lib/time";
import { serverNow } from "./client";
import { type Change, Colours, type FleetEvent, mergeVirtualSites, type VirtualSites } from "./fleet";
import { keys } from "./keys";
import { LiveStream, type LiveState } from "./stream";
import type { SiteMap, Time, VirtualSite } from "./types";

const KEPT_CHANGES = 200;
/** A tab in the background keeps its stream for this long. */
const HIDDEN_MS = 60_000;

export const liveState = new Store<LiveState>({ kind: "connecting" });
/** Newest first, since this page was opened. */
export const recentChanges = new Store<readonly Change[]>([]);
/** The newest evaluation heard of. */
export const lastTick = new Store<Time | null>(null);

/** Milliseconds between the last two evaluations. */
export const tickInterval = new Store(15_000);

/** What is shown of sites is asked for at most this often. */
const ASK_MS = 3000;

/** Starts following; the returned function stops it. */
export function startLive(client: QueryClient): () => void {
  const colours = new Colours();
  const unsubscribe = client.getQueryCache().subscribe((e) => {
    if (e.type === "updated" && e.action.type === "success" && e.query.queryKey[0] === keys.inventoryAll[0] && e.query.queryKey[1] === "map") colours.learn(e.query.state.data as SiteMap);
  });
  const ask = rarely(() => void client.invalidateQueries({ queryKey: keys.inventoryAll, predicate: (q) => !isLong(q.state.data) }));
  let connected = false;
  const stream = new LiveStream({
    url: "/api/v1/health/stream?brief=true",
    onState: liveState.set,
    onConnect: () => {
      // What happened while there was no stream; a page that was just loaded asks for nothing twice.
      const predicate = (q: Query) => !isLong(q.state.data) && (connected || q.isStale());
      for (const queryKey of [keys.inventoryAll, keys.virtualSites]) void client.invalidateQueries({ queryKey, predicate });
      connected = true;
    },
    onEvent: (type, data) => onEvent(client, colours, ask.now, type, data),
  });
  let hidden: ReturnType<typeof setTimeout> | undefined;
  const nudge = () => {
    clearTimeout(hidden);
    if (document.visibilityState === "visible") stream.nudge();
    else hidden = setTimeout(() => stream.pause(), HIDDEN_MS);
  };
  document.addEventListener("visibilitychange", nudge);
  window.addEventListener("online", nudge);
  stream.start();
  return () => {
    clearTimeout(hidden);
    stream.stop();
    ask.stop();
    unsubscribe();
    document.removeEventListener("visibilitychange", nudge);
    window.removeEventListener("online", nudge);
    liveState.set({ kind: "connecting" });
    recentChanges.set([]);
    lastTick.set(null);
    previousTick = undefined;
  };
}

/** Calls at once, and then not again for a while; what is wanted meanwhile is done after it. */
function rarely(f: () => void): { now: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let again = false;
  const now = () => {
    if (timer !== undefined) {
      again = true;
      return;
    }
    f();
    timer = setTimeout(() => {
      timer = undefined;
      if (!again) return;
      again = false;
      now();
    }, ASK_MS);
  };
  return { now, stop: () => clearTimeout(timer) };
}

/** A list of which many pages are loaded is left as it is: its age stands beside it. */
const isLong = (data: unknown): boolean => ((data as { pages?: unknown[] } | undefined)?.pages?.length ?? 0) > 3;

let previousTick: number | undefined;

function noteInterval(asOf: Time | null): void {
  const t = parseTime(asOf);
  if (t !== undefined && previousTick !== undefined && t > previousTick) tickInterval.set(t - previousTick);
  previousTick = t;
}

function onEvent(client: QueryClient, colours: Colours, ask: () => void, type: string, data: unknown): void {
  if (!data || typeof data !== "object") return;
  const asOf = (data as { asOf?: Time | null }).asOf ?? null;
  if (asOf) lastTick.set(asOf);
  switch (type) {
    case "sites":
    case "removed": {
      const e = { type, asOf, sites: (data as { sites?: unknown }).sites ?? [] } as FleetEvent;
      const fresh: Change[] = colours.apply(e, parseTime(asOf) ?? serverNow(), headline);
      if (fresh.length > 0) recentChanges.set([...fresh.reverse(), ...recentChanges.get()].slice(0, KEPT_CHANGES));
      if (e.sites.length > 0) ask();
      for (const s of e.sites) void client.invalidateQueries({ queryKey: keys.siteKey(siteKey(s)) });
      break;
    }
    case "virtualsites": {
      const changed = (data as { virtualSites?: VirtualSite[] }).virtualSites ?? [];
      client.setQueryData<VirtualSites>(keys.virtualSites, (v) => (v ? mergeVirtualSites(v, changed) : v));
      break;
    }
    case "tick":
      noteInterval(asOf);
  }
}
