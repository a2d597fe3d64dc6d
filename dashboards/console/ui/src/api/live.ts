// Keeps the cached fleet true while somebody is logged in: lists first, then the
// stream's changes; after each reconnect the lists again.

import type { QueryClient } from "@tanstack/react-query";
import { headline, siteKey } from "../lib/site";
import { Store } from "../lib/store";
import { parseTime } from "../lib/time";
import { serverNow } from "./client";
import { applyEvent, type Change, changesBetween, EventBuffer, type Fleet, type FleetEvent, mergeVirtualSites, type VirtualSites } from "./fleet";
import { keys } from "./keys";
import { LiveStream, type LiveState } from "./stream";
import type { Time, VirtualSite } from "./types";

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

export const fleetBuffer = new EventBuffer();

/** Starts following; the returned function stops it. */
export function startLive(client: QueryClient): () => void {
  let last: Fleet | undefined = client.getQueryData<Fleet>(keys.fleet);
  const unsubscribe = client.getQueryCache().subscribe((e) => {
    if (e.type !== "updated" || e.query.queryKey[0] !== keys.fleet[0]) return;
    const now = e.query.state.data as Fleet | undefined;
    if (!now || now === last) return;
    if (last) noteChanges(last, now);
    last = now;
  });
  const stream = new LiveStream({
    url: "/api/v1/health/stream",
    onState: liveState.set,
    onConnect: () => {
      void client.invalidateQueries({ queryKey: keys.fleet });
      void client.invalidateQueries({ queryKey: keys.virtualSites });
    },
    onEvent: (type, data) => onEvent(client, type, data),
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
    unsubscribe();
    document.removeEventListener("visibilitychange", nudge);
    window.removeEventListener("online", nudge);
    liveState.set({ kind: "connecting" });
    recentChanges.set([]);
    lastTick.set(null);
    previousTick = undefined;
  };
}

function noteChanges(before: Fleet, after: Fleet): void {
  const fresh = changesBetween(before, after, parseTime(after.asOf) ?? serverNow(), headline);
  if (fresh.length > 0) recentChanges.set([...fresh.reverse(), ...recentChanges.get()].slice(0, KEPT_CHANGES));
}

let previousTick: number | undefined;

function noteInterval(asOf: Time | null): void {
  const t = parseTime(asOf);
  if (t !== undefined && previousTick !== undefined && t > previousTick) tickInterval.set(t - previousTick);
  previousTick = t;
}

function onEvent(client: QueryClient, type: string, data: unknown): void {
  if (!data || typeof data !== "object") return;
  const asOf = (data as { asOf?: Time | null }).asOf ?? null;
  if (asOf) lastTick.set(asOf);
  switch (type) {
    case "sites":
    case "removed": {
      const e = { type, asOf, sites: (data as { sites?: unknown }).sites ?? [] } as FleetEvent;
      fleetBuffer.add(e);
      client.setQueryData<Fleet>(keys.fleet, (f) => (f ? applyEvent(f, e) : f));
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
      client.setQueryData<Fleet>(keys.fleet, (f) => (f ? applyEvent(f, { type: "sites", asOf, sites: [] }) : f));
  }
}
