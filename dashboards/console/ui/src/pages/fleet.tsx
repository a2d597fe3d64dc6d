import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "wouter";
import { Problem } from "../api/client";
import { useInventoryRows, useSiteFields } from "../api/inventory-queries";
import { recentChanges } from "../api/live";
import { useSiteMap } from "../api/map-queries";
import { sessionQuery, useRegistrations } from "../api/queries";
import type { SiteMap } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { QueryBox } from "../components/query-box";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { LIST_COLUMNS, SiteList } from "../components/site-list";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { COLOURS, colourMeaning, colourName } from "../lib/colour";
import { formatCount, plural } from "../lib/format";
import { both, formatView, hasColour, hasTerm, toggleColour, toggleTerm, type View } from "../lib/inventory";
import { siteKey, sitePath, type SiteRef } from "../lib/site";
import { useStore } from "../lib/store";
import { useView } from "../lib/use-view";
import { spotsOf } from "../map/spots";
import { WorldMap } from "../map/world-map";
import { SavedViews } from "../panels/inventory-tools";
import { PaintKey, PaintSelect, useStepsOverlay } from "../panels/map-paint";

/** How long a site that changed its colour stands out on the map. */
const TURNED_MS = 4000;

/** The sites of a query on a map, and beside it as a list. */
export function FleetPage() {
  const { view, by, change } = useMapView();
  const [, navigate] = useLocation();
  const [lit, setLit] = useState<string | null>(null);
  const [tab, setTab] = useState<"sites" | "changes">("sites");
  useTitle("Fleet");
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const [q, setQ] = useTyped(view.q, useCallback((text: string) => change({ q: text }), [change]));
  const known = useSiteFields(view.tenant).data;
  const overlay = useStepsOverlay(by);
  const map = useSiteMap({ q: view.q, tenant: view.tenant, by: overlay ? "" : by });
  const listed = useMemo(() => ({ ...view, columns: LIST_COLUMNS, sort: "score", group: "" }), [view]);
  const rows = useInventoryRows(listed, "", true);
  const loaded = useMemo(() => rows.data?.pages.flatMap((p) => p.sites) ?? [], [rows.data]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = rows;
  const onReach = useCallback(
    (row: number) => {
      if (row >= loaded.length - 50 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [loaded.length, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  const { spots, paint } = useMemo(() => spotsOf(map.data, overlay), [map.data, overlay]);
  const turned = useTurned();
  const open = useCallback((s: SiteRef) => navigate(sitePath(s)), [navigate]);
  const error = map.error ?? rows.error;
  const fault = error instanceof Problem && error.status === 400 ? error.fieldFault("q") : "";
  const again = () => void Promise.all([map.refetch(), rows.refetch()]);
  const m = map.data;
  const inventory = `/sites?${formatView(view)}`;

  return (
    <>
      <h1 className="visually-hidden">Fleet</h1>
      <div className="fleet">
        <section className="fleet-map" aria-label="Map">
          <div className="fleet-tools">
            <form role="search" aria-label="Query and view" className="fleet-query" onSubmit={(e) => e.preventDefault()}>
              <QueryBox value={q} onChange={setQ} known={known} fault={fault} />
              <TenantSelect value={view.tenant} tenants={tenants} width={130} onChange={(tenant) => change({ tenant })} />
              <PaintSelect by={by} known={known} onChange={(b) => change({}, b)} />
              <SavedViews view={view} tenants={tenants} onOpen={(v) => change(v)} />
            </form>
            <Legend map={m} q={view.q} onChange={(text) => change({ q: text })} />
            {paint.of && <PaintKey paint={paint} spots={spots} />}
          </div>
          <div className="fleet-world">
            <WorldMap sites={spots} paint={paint} onOpen={open} lit={lit} onLit={setLit} turned={turned} remember="fleet"
              label="World map of sites. Tab goes through the markers, worst first; arrow keys go to the next marker in that direction; Enter opens; Escape goes back; plus, minus and 0 zoom." />
            <MapState map={m} pending={map.isPending} error={fault ? null : map.error} onRetry={again} />
          </div>
          {m && m.unplaced > 0 && (
            <p className="unplaced">
              {plural(m.unplaced, "site has", "sites have")} no place and can't be shown on the map. <Link href={`/sites?${formatView({ ...view, q: both(view.q, "onMap=false") })}`}>List {m.unplaced === 1 ? "it" : "them"}</Link>
            </p>
          )}
        </section>
        <section className="fleet-side" aria-label="Sites">
          <div className="list-head">
            <div className="segmented" role="group" aria-label="Side list">
              <button type="button" aria-pressed={tab === "sites"} onClick={() => setTab("sites")}>
                Sites
              </button>
              <button type="button" aria-pressed={tab === "changes"} onClick={() => setTab("changes")}>
                Changes
              </button>
            </div>
            <span aria-live="polite">{m && tab === "sites" && (m.total < m.readable ? `${formatCount(m.total)} of ${plural(m.readable, "site")}` : `${plural(m.readable, "site")}${m.total > 1 ? ", worst first" : ""}`)}</span>
            <Link href={inventory} className="button quiet">
              Table
            </Link>
          </div>
          {tab === "changes" ? (
            <Changes />
          ) : (
            <div className="fleet-list">
              <div>
                {rows.error && !fault && (
                  <div style={{ padding: 12 }}>
                    <ProblemNote error={rows.error} doing={rows.data ? "refresh the sites; these are older" : "load the sites"} onRetry={again} />
                  </div>
                )}
                {rows.isPending && !error && (
                  <div style={{ padding: 12 }}>
                    <Skeleton height={44} count={9} />
                  </div>
                )}
                {m?.notes.map((n) => (
                  <p key={n} className="note slim small" role="status" style={{ margin: 8 }}>
                    {n}
                  </p>
                ))}
                {m && m.readable === 0 && <NoSites />}
                {m && m.readable > 0 && m.total === 0 && (
                  <Empty title="No site matches">
                    <p>{plural(m.readable, "site does", "sites do")} not fit the query.</p>
                    <button type="button" className="button" onClick={() => change({ q: "", tenant: "" })}>
                      Show all sites
                    </button>
                  </Empty>
                )}
              </div>
              <SiteList rows={loaded} total={rows.data?.pages.at(-1)?.total ?? 0} onReach={onReach} label="Sites, worst first" lit={lit} onLit={setLit} showTenant={tenants.length > 1 && !view.tenant} />
            </div>
          )}
        </section>
      </div>
    </>
  );
}

let lastSearch = "";

/** The address of the fleet page as it was left, filters included. */
export const fleetHref = (): string => (lastSearch ? `/?${lastSearch}` : "/");

/** What is shown lives in the address, as the inventory's views do, with what the map is coloured by. */
function useMapView(): { view: View; by: string; change: (v: Partial<View>, by?: string) => void } {
  const { view, search, change } = useView("/");
  const by = new URLSearchParams(search).get("by") ?? "";
  useEffect(() => {
    lastSearch = search;
  }, [search]);
  return { view, by, change: useCallback((v: Partial<View>, nextBy?: string) => change(v, { by: nextBy ?? by }), [change, by]) };
}

/** The sites whose colour changed in the last seconds. */
function useTurned(): ReadonlySet<string> {
  const changes = useStore(recentChanges);
  const [turned, setTurned] = useState<ReadonlySet<string>>(new Set());
  const seen = useRef(changes[0]?.id ?? 0);
  useEffect(() => {
    const fresh = changes.filter((c) => c.id > seen.current);
    if (fresh.length === 0) return;
    seen.current = fresh[0]!.id;
    const names = fresh.map((c) => siteKey(c.site));
    setTurned((t) => new Set([...t, ...names]));
    setTimeout(() => setTurned((t) => new Set([...t].filter((k) => !names.includes(k)))), TURNED_MS);
  }, [changes]);
  return turned;
}

function Legend({ map, q, onChange }: { map: SiteMap | undefined; q: string; onChange: (q: string) => void }) {
  return (
    <div className="legend" role="group" aria-label="Colours; press to filter">
      {COLOURS.map((c) => (
        <button key={c} type="button" aria-pressed={hasColour(q, c)} title={`${colourName[c]}: ${colourMeaning[c]}`} data-legend={c} onClick={() => onChange(toggleColour(q, c))}>
          <Shape colour={c} />
          {colourName[c]}
          <b>{map ? formatCount(map.counts[c]) : "–"}</b>
        </button>
      ))}
      <button type="button" aria-pressed={hasTerm(q, "maintenance=true")} title="Sites in planned work; virtual sites leave them out" onClick={() => onChange(toggleTerm(q, "maintenance=true"))}>
        <svg className="shape" width="14" height="14" viewBox="0 0 16 16" aria-hidden>
          <circle cx="8" cy="8" r="6.2" fill="none" stroke="var(--muted)" strokeWidth="1.6" strokeDasharray="3 2.2" />
        </svg>
        Maintenance
        <b>{map ? formatCount(map.maintenance) : "–"}</b>
      </button>
    </div>
  );
}

/** What the map says when it has nothing to show. */
function MapState({ map, pending, error, onRetry }: { map: SiteMap | undefined; pending: boolean; error: Error | null; onRetry: () => void }) {
  if (map && map.names.length > 0 && !error) return null;
  return (
    <div className="map-state" role="status">
      {error ? (
        <ProblemNote slim error={error} doing={map ? "refresh the map; this is older" : "load the map"} onRetry={onRetry} />
      ) : pending ? (
        <p className="note slim small">Loading the sites…</p>
      ) : (
        map && map.total > 0 && <p className="note slim small">None of the sites has a place. Give them one when you approve them, or with kubectl.</p>
      )}
    </div>
  );
}

function NoSites() {
  const { data } = useRegistrations();
  if (data && data.length > 0) {
    return (
      <Empty title="No site is in the fleet yet">
        <p>{plural(data.length, "machine waits", "machines wait")} for approval.</p>
        <Link href="/registrations" className="button primary">
          Look at registrations
        </Link>
      </Empty>
    );
  }
  return (
    <Empty title="No sites yet">
      <p>Make a registration token; the command that it prints joins a machine.</p>
      <Command text="muster token create" />
    </Empty>
  );
}

function Changes() {
  const changes = useStore(recentChanges);
  if (changes.length === 0) {
    return (
      <Empty title="No changes so far">
        <p>Sites that change their colour while this page is open are listed here, the newest first.</p>
      </Empty>
    );
  }
  return (
    <ol className="changes" aria-label="Changes of colour, newest first">
      {changes.map((c) => (
        <li key={c.id}>
          <span className="arrow">
            <Shape colour={c.from} size={12} label /> → <Shape colour={c.to} size={12} label />
          </span>
          <Link href={sitePath(c.site)} className="truncate">
            {c.site.name}
          </Link>
          <span className="small muted">
            <Ago time={c.at} />
          </span>
          <span className="why">{c.text}</span>
        </li>
      ))}
    </ol>
  );
}
