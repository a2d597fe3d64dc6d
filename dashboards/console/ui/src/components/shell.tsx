import { useIsFetching, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { Link } from "wouter";
import { api } from "../api/client";
import { lastTick, liveState, recentChanges, tickInterval } from "../api/live";
import type { LiveState } from "../api/stream";
import type { Logout } from "../api/types";
import { useFleetCounts } from "../api/inventory-queries";
import { sessionQuery } from "../api/queries";
import { Icon } from "./icon";
import { MainNav } from "./main-nav";
import { useNow } from "./time";
import { colourName } from "../lib/colour";
import { useStore } from "../lib/store";
import { setZone, zone, zoneName } from "../lib/zone";
import { setTheme, theme, type Theme } from "../lib/theme";
import { formatAbsolute, formatClock, parseTime } from "../lib/time";
import { endSession } from "../session";

/** What the page calls itself while a child gives no better name. */
export function useTitle(title: string): void {
  const failing = useFleetCounts().data?.counts.red ?? 0;
  useEffect(() => {
    document.title = `${failing > 0 ? `(${failing}) ` : ""}${title} · Muster`;
  }, [title, failing]);
}

export function Brand() {
  return (
    <>
      <img src="/icon.svg" width="22" height="22" alt="" />
      <span>Muster</span>
    </>
  );
}

/** Bar on top, the page beneath. fixed: the page fills the window and scrolls inside. */
export function Shell({ children, fixed }: { children: ReactNode; fixed: boolean }) {
  return (
    <div className={fixed ? "shell fixed" : "shell"}>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <header className="topbar">
        <Link href="/" className="brand">
          <Brand />
        </Link>
        <MainNav />
        <div className="tools">
          <LiveIndicator />
          <User />
          <ZoneToggle />
          <ThemeToggle />
          <LogOut />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Announcer />
    </div>
  );
}

/** Evaluations come every 15 s by default; without one for this long, the figures count as old. */
const STOPPED_MS = 90_000;

function LiveIndicator() {
  const connection = useStore(liveState);
  const listed = parseTime(useFleetCounts().data?.asOf);
  const told = parseTime(useStore(lastTick));
  const tick = listed === undefined ? told : Math.max(listed, told ?? 0);
  const interval = useStore(tickInterval);
  const now = useNow();
  // A connection is worth nothing while the engine behind it stands still.
  const stopped = connection.kind === "live" && tick !== undefined && now - tick > Math.max(STOPPED_MS, 4 * interval);
  // Without the stream the lists are polled: as long as that works, nothing is stale.
  const polling = connection.kind === "stale" && tick !== undefined && now - tick < Math.max(STOPPED_MS, 4 * interval);
  const live: LiveState = stopped
    ? { kind: "stale", since: tick }
    : polling
      ? { kind: "reconnecting", since: connection.since }
      : connection.kind === "stale"
        ? { kind: "stale", since: Math.max(connection.since, tick ?? 0) }
        : connection;
  const fetching = useIsFetching({ queryKey: ["inventory"] }) > 0;
  const at = tick === undefined ? "" : formatClock(tick);
  const text = {
    connecting: fetching ? "Loading" : "Connecting",
    live: "Live",
    reconnecting: polling ? "No stream, polling" : "Reconnecting",
    stale: "Stale",
  }[live.kind];
  const since = live.kind === "stale" ? ` since ${formatClock(live.since)}` : "";
  const title = tick === undefined ? text : `${text}${since}. Newest evaluation: ${formatAbsolute(tick)}`;
  return (
    <span className={`live is-${live.kind}`} title={title} data-live={live.kind}>
      <i aria-hidden />
      <span role="status">
        {text}
        {since && <span className="live-since">{since}</span>}
      </span>
      {live.kind === "live" && at && <span className="muted">{at}</span>}
    </span>
  );
}

function User() {
  const { data } = useQuery(sessionQuery);
  if (!data) return null;
  return (
    <span className="user truncate" title={`${data.user}\nTenants: ${data.tenants.join(", ") || "none"}`}>
      {data.user}
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICON: Record<Theme, string> = {
  system: "M2.5 3.5h11v7h-11zM6 13.5h4M8 10.5v3",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  dark: "M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6Z",
};

export function ThemeToggle() {
  const t = useStore(theme);
  return (
    <button type="button" className="button quiet icon" aria-label={`Theme: ${t}. Change to ${NEXT[t]}`} title={`Theme: ${t}`} onClick={() => setTheme(NEXT[t])}>
      <Icon d={ICON[t]} />
    </button>
  );
}

/** The zone of all clocks: the browser's, or UTC. */
function ZoneToggle() {
  const z = useStore(zone);
  const next = z === "UTC" ? "local" : "UTC";
  return (
    <button type="button" className="button quiet zone" aria-label={`Times are in ${z === "UTC" ? "UTC" : zoneName()}. Change to ${next === "UTC" ? "UTC" : "this browser's zone"}`} title={`Times are in ${zoneName()}`} onClick={() => setZone(next)}>
      {z === "UTC" ? "UTC" : "Local"}
    </button>
  );
}

function LogOut() {
  const client = useQueryClient();
  const out = async () => {
    let done: Logout | undefined;
    try {
      done = await api<Logout | undefined>("DELETE", "/api/v1/session");
    } finally {
      endSession(client, "");
    }
    // The identity provider would log the next one at this browser in again without a word.
    if (done?.endSessionURL) window.location.assign(done.endSessionURL);
  };
  return (
    <button type="button" className="button quiet icon" aria-label="Log out" title="Log out" onClick={() => void out()}>
      <Icon d="M6.5 2.5h-4v11h4M10 5l3.2 3L10 11M13 8H6.5" />
    </button>
  );
}

/** Tells changes of colour to those who can't see them, a few at a time. */
function Announcer() {
  const changes = useStore(recentChanges);
  const [text, setText] = useState("");
  const [told, setTold] = useState(0);
  useEffect(() => {
    const fresh = changes.filter((c) => c.id > told);
    if (fresh.length === 0) return;
    const timer = setTimeout(() => {
      setTold(fresh[0]!.id);
      const red = fresh.filter((c) => c.to === "red");
      const named = (red.length > 0 ? red : fresh).slice(0, 3).map((c) => `${c.site.name} is now ${colourName[c.to].toLowerCase()}: ${c.text}`);
      const more = fresh.length - named.length;
      setText(named.join(". ") + (more > 0 ? `. And ${more} more changes` : ""));
    }, 1000);
    return () => clearTimeout(timer);
  }, [changes, told]);
  return (
    <div className="visually-hidden" aria-live="polite">
      {text}
    </div>
  );
}
