import { useCallback, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { recentChanges } from "../api/live";
import { useFleet, useRegistrations } from "../api/queries";
import type { Colour, Site } from "../api/types";
import { Shape } from "../components/shape";
import { Shell, useTitle } from "../components/shell";
import { SiteList } from "../components/site-list";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { COLOURS, colourMeaning, colourName, countColours } from "../lib/colour";
import { choices, type Filter, formatFilter, isFiltered, matchesBase, matchesColour, parseFilter, PHASES } from "../lib/filter";
import { formatCount, plural } from "../lib/format";
import { compareWorst, hasPlace, siteKey, sitePath } from "../lib/site";
import { useStore } from "../lib/store";
import { parseTime } from "../lib/time";
import { WorldMap } from "../map/world-map";

/** How long a site that changed its colour stands out on the map. */
const TURNED_MS = 4000;

export function FleetPage() {
  const fleet = useFleet();
  const [filter, setFilter] = useFilter();
  const [, navigate] = useLocation();
  const [lit, setLit] = useState<string | null>(null);
  const [tab, setTab] = useState<"sites" | "changes">("sites");
  useTitle("Fleet");

  const held = fleet.data?.sites; // the same object from tick to tick while no site changes
  const all = useMemo(() => [...(held?.values() ?? [])], [held]);
  const tenants = useMemo(() => new Set(all.map((s) => s.tenant)).size, [all]);
  const deferred = useDeferredValue(filter);
  const base = useMemo(() => all.filter((s) => matchesBase(s, deferred)), [all, deferred]);
  const shown = useMemo(() => base.filter((s) => matchesColour(s, deferred)).sort(compareWorst), [base, deferred]);
  const placed = useMemo(() => shown.filter(hasPlace), [shown]);
  const unplaced = useMemo(() => shown.filter((s) => !hasPlace(s)), [shown]);
  const turned = useTurned();
  const open = useCallback((s: Site) => navigate(sitePath(s)), [navigate]);
  const loaded = fleet.data !== undefined;
  const change = (f: Partial<Filter>) => setFilter({ ...filter, ...f });

  return (
    <Shell fixed>
      <h1 className="visually-hidden">Fleet</h1>
      <div className="fleet">
        <section className="fleet-map" aria-label="Map">
          <Legend sites={base} filter={filter} onChange={change} loaded={loaded} />
          <WorldMap sites={placed} onOpen={open} lit={lit} onLit={setLit} turned={turned} remember="fleet"
            label="World map of sites. Tab goes through the markers, worst first; arrow keys go to the next marker in that direction; Enter opens; Escape goes back; plus, minus and 0 zoom." />
          {unplaced.length > 0 && <Unplaced sites={unplaced} />}
        </section>
        <section className="fleet-side" aria-label="Sites">
          <Filters all={all} filter={filter} onChange={change} />
          <div className="list-head">
            <div className="segmented" role="group" aria-label="Side list">
              <button type="button" aria-pressed={tab === "sites"} onClick={() => setTab("sites")}>
                Sites
              </button>
              <button type="button" aria-pressed={tab === "changes"} onClick={() => setTab("changes")}>
                Changes
              </button>
            </div>
            <span aria-live="polite">{loaded && tab === "sites" && (isFiltered(filter) ? `${formatCount(shown.length)} of ${plural(all.length, "site")}` : `${plural(all.length, "site")}, worst first`)}</span>
            {isFiltered(filter) && (
              <button type="button" className="button quiet" onClick={() => setFilter(parseFilter(""))}>
                Clear filters
              </button>
            )}
          </div>
          {tab === "changes" ? (
            <Changes />
          ) : (
            <div style={{ minHeight: 0, display: "grid", gridTemplateRows: "auto minmax(0, 1fr)" }}>
              <div>
                {fleet.error && (
                  <div style={{ padding: 12 }}>
                    <ProblemNote error={fleet.error} doing={loaded ? "refresh the sites; these are older" : "load the sites"} onRetry={() => void fleet.refetch()} />
                  </div>
                )}
                {fleet.isPending && (
                  <div style={{ padding: 12 }}>
                    <Skeleton height={44} count={9} />
                  </div>
                )}
                {loaded && parseTime(fleet.data.asOf) === undefined && all.length > 0 && (
                  <div className="note slim small" style={{ margin: 8 }}>
                    The health engine has not finished its first evaluation; scores follow within seconds.
                  </div>
                )}
                {loaded && all.length === 0 && <NoSites />}
                {loaded && all.length > 0 && shown.length === 0 && (
                  <Empty title="No site matches">
                    <p>{plural(all.length, "site is", "sites are")} hidden by the search and filters.</p>
                    <button type="button" className="button" onClick={() => setFilter(parseFilter(""))}>
                      Clear filters
                    </button>
                  </Empty>
                )}
              </div>
              <SiteList sites={shown} asOf={fleet.data?.asOf ?? null} label="Sites, worst first" lit={lit} onLit={setLit} showTenant={tenants > 1} />
            </div>
          )}
        </section>
      </div>
    </Shell>
  );
}

let lastSearch = "";

/** The address of the fleet page as it was left, filters included. */
export const fleetHref = (): string => (lastSearch ? `/?${lastSearch}` : "/");

function useFilter(): [Filter, (f: Filter) => void] {
  const search = useSearch();
  const [, navigate] = useLocation();
  const [local, setLocal] = useState(() => parseFilter(search));
  const written = useRef(formatFilter(local));
  useEffect(() => {
    lastSearch = search;
    const next = parseFilter(search);
    if (formatFilter(next) === written.current) return;
    written.current = formatFilter(next); // back, forward, or a link
    setLocal(next);
  }, [search]);
  const set = useCallback(
    (f: Filter) => {
      setLocal(f);
      written.current = formatFilter(f);
      navigate(written.current ? `/?${written.current}` : "/", { replace: true });
    },
    [navigate],
  );
  return [local, set];
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

function Legend({ sites, filter, onChange, loaded }: { sites: readonly Site[]; filter: Filter; onChange: (f: Partial<Filter>) => void; loaded: boolean }) {
  const counts = useMemo(() => countColours(sites), [sites]);
  const maintenance = useMemo(() => sites.reduce((n, s) => n + (s.maintenance ? 1 : 0), 0), [sites]);
  const toggle = (c: Colour) => {
    const next = new Set(filter.colours);
    if (!next.delete(c)) next.add(c);
    onChange({ colours: next });
  };
  return (
    <div className="legend" role="group" aria-label="Colours; press to filter">
      {COLOURS.map((c) => (
        <button key={c} type="button" aria-pressed={filter.colours.has(c)} title={`${colourName[c]}: ${colourMeaning[c]}`} data-legend={c} onClick={() => toggle(c)}>
          <Shape colour={c} />
          {colourName[c]}
          <b>{loaded ? formatCount(counts[c]) : "–"}</b>
        </button>
      ))}
      <button type="button" aria-pressed={filter.maintenance} title="Sites in planned work; virtual sites leave them out" onClick={() => onChange({ maintenance: !filter.maintenance })}>
        <svg className="shape" width="14" height="14" viewBox="0 0 16 16" aria-hidden>
          <circle cx="8" cy="8" r="6.2" fill="none" stroke="var(--muted)" strokeWidth="1.6" strokeDasharray="3 2.2" />
        </svg>
        Maintenance
        <b>{loaded ? formatCount(maintenance) : "–"}</b>
      </button>
    </div>
  );
}

function Filters({ all, filter, onChange }: { all: readonly Site[]; filter: Filter; onChange: (f: Partial<Filter>) => void }) {
  const lists = useMemo(
    () => ({
      region: choices(all, (s) => s.region),
      virtualSite: choices(all, (s) => s.virtualSites),
      tenant: choices(all, (s) => s.tenant),
      phase: PHASES.filter((p) => all.some((s) => s.phase === p)),
    }),
    [all],
  );
  const pick = (key: "region" | "virtualSite" | "tenant" | "phase", label: string, anyText: string) => {
    const options: readonly string[] = lists[key];
    const value = filter[key];
    return (
      <select className={value ? "select set" : "select"} aria-label={label} value={value} onChange={(e) => onChange({ [key]: e.target.value })}>
        <option value="">{anyText}</option>
        {(value && !options.includes(value) ? [value, ...options] : options).map((o) => (
          <option key={o}>{o}</option>
        ))}
      </select>
    );
  };
  return (
    <div className="filters" role="search" aria-label="Search and filter sites">
      <input className="input search" type="search" aria-label="Search sites" placeholder="Search name, place, reason…" value={filter.q} onChange={(e) => onChange({ q: e.target.value })} />
      {pick("region", "Region", "All regions")}
      {pick("virtualSite", "Virtual site", "All virtual sites")}
      {pick("phase", "Phase", "All phases")}
      {lists.tenant.length > 1 || filter.tenant ? (
        pick("tenant", "Tenant", "All tenants")
      ) : (
        <select className="select" aria-label="Tenant" disabled>
          <option>{lists.tenant[0] ? `Tenant ${lists.tenant[0]}` : "All tenants"}</option>
        </select>
      )}
    </div>
  );
}

function Unplaced({ sites }: { sites: readonly Site[] }) {
  return (
    <details className="unplaced">
      <summary>{plural(sites.length, "site has", "sites have")} no place and can't be shown on the map</summary>
      <ul>
        {sites.slice(0, 200).map((s) => (
          <li key={siteKey(s)}>
            <Link href={sitePath(s)} className="row" style={{ gap: 5 }}>
              <Shape colour={s.colour} size={11} label />
              {s.name}
            </Link>
          </li>
        ))}
        {sites.length > 200 && <li className="muted">and {formatCount(sites.length - 200)} more</li>}
      </ul>
    </details>
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
