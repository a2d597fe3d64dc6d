import { useMemo, useState } from "react";
import { Link, useSearch } from "wouter";
import { Problem } from "../api/client";
import { useBetween, useMarks } from "../api/metric-queries";
import { dimensionsQuery, scoreQuery, useSiteHealth, useSiteHistory, useSiteObject } from "../api/queries";
import type { Dimension, Maintenance, SiteDetail, SiteObject } from "../api/types";
import { AlertPanel } from "../components/alert-panel";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago, For, useNow } from "../components/time";
import { colourName, DIMENSIONS, dimensionName } from "../lib/colour";
import { formatPoints, formatScore, formatValue, plural } from "../lib/format";
import { RANGES, type Range, type Sample, summarize } from "../lib/history";
import { betweenOf } from "../lib/between";
import { type Line, SCORE_BANDS } from "../lib/chart";
import { linkPath } from "../lib/links";
import { MARKED, marksOf } from "../lib/marks";
import { costPath, hasPlace, scorePath, shadowPath, signalPath, siteKey } from "../lib/site";
import { formatDuration, parseTime } from "../lib/time";
import { useTenantInAddress } from "../lib/use-whole-address";
import { WorldMap } from "../map/world-map";
import { fleetHref } from "./fleet";
import { MaintenanceWindows } from "../panels/maintenance-windows";
import { MaintenanceBar } from "../panels/site-maintenance";
import { RolloutsOfSite } from "../panels/rollout-notes";
import { ConditionsCard, SiteFacts } from "../panels/site-facts";
import { SiteHosts } from "../panels/site-hosts";
import { ResetNote, SiteResetCard } from "../panels/site-reset";
import { SiteWorkloads } from "../panels/site-workloads";
import { TimelinePanel } from "../panels/timeline-panel";
import { SignalsTable } from "../panels/site-signals";

export function SitePage({ name }: { name: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const health = useSiteHealth({ tenant, name });
  useTitle(name);
  const site = health.data;
  useTenantInAddress(site);
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={fleetHref()}>← Fleet</Link>
      </p>
      {health.isPending && <Loading name={name} />}
      {health.error && !site && <Failed error={health.error} name={name} onRetry={() => void health.refetch()} />}
      {site && (
        <>
          {health.error && <ProblemNote slim error={health.error} doing="refresh this site; the figures are older" onRetry={() => void health.refetch()} />}
          <Loaded key={siteKey(site)} site={site} />
        </>
      )}
    </div>
  );
}

function Loading({ name }: { name: string }) {
  return (
    <>
      <h1>{name}</h1>
      <div className="dims">
        {DIMENSIONS.map((d) => (
          <div key={d} className="card dim">
            <h2>{dimensionName[d]}</h2>
            <Skeleton height={60} />
          </div>
        ))}
      </div>
      <Skeleton height={36} count={4} />
    </>
  );
}

/** page is what comes after the site's path: a site of the same name has it too. */
export function Failed({ error, name, onRetry, page = "" }: { error: unknown; name: string; onRetry: () => void; page?: string }) {
  if (error instanceof Problem && error.tenants.length > 0) {
    return (
      <div className="card">
        <Empty page title={`Several tenants have a site ${name}`}>
          <ul className="row wrap">
            {error.tenants.map((t) => (
              <li key={t}>
                <Link className="button" href={`/sites/${encodeURIComponent(name)}${page}?tenant=${encodeURIComponent(t)}`}>
                  {t}/{name}
                </Link>
              </li>
            ))}
          </ul>
        </Empty>
      </div>
    );
  }
  if (error instanceof Problem && error.status === 404) {
    return (
      <div className="card">
        <Empty page title="There is no such site">
          <p>{error.detail}</p>
          <Link href="/" className="button">
            Go to the fleet
          </Link>
        </Empty>
      </div>
    );
  }
  return (
    <>
      <h1>{name}</h1>
      <ProblemNote error={error} doing="load the site" onRetry={onRetry} />
    </>
  );
}

const SCORES = [0, 100] as const;

function Loaded({ site }: { site: SiteDetail }) {
  const object = useSiteObject(site);
  const [range, setRange] = useState<Range>(RANGES[0]!);
  const [at, setAt] = useState<number | null>(null);
  const history = useSiteHistory(site, range, true);
  const h = history.data;
  const between = useBetween(site.tenant, scoreQuery(site.name), range, history);
  const scores = between.data;
  const dimensions = useBetween(site.tenant, dimensionsQuery(site.name), range, history).data;
  const lines = useMemo(() => {
    const within = new Map([...(scores ? betweenOf(scores, () => "") : []), ...(dimensions ? betweenOf(dimensions, (m) => m.dimension) : [])]);
    const line = (id: string, name: string, samples: readonly Sample[] = []): [string, Line[]] => [id, [{ name, samples, ...(within.has(id) && { between: within.get(id)! }) }]];
    return new Map([line("", "Score", h?.score), ...DIMENSIONS.map((d) => line(d, dimensionName[d], h?.dimensions.get(d)))]);
  }, [h, scores, dimensions]);
  const happened = useMarks({ tenant: site.tenant, site: site.name }, h?.start ?? 0, h?.end ?? 0, MARKED).events;
  const marks = useMemo(() => marksOf(happened, h?.start ?? 0, h?.end ?? 0), [happened, h?.start, h?.end]);
  const maintenance = useMaintenanceOf(site, object.data);
  return (
    <>
      <Header site={site} maintenance={maintenance} />
      {maintenance && <MaintenanceBar site={site} maintenance={maintenance} />}
      <ResetNote reset={object.data?.reset} />
      {site.fromStore && (
        <div className="note slim">
          <strong>Its regional can't be reached</strong>
          <span>The figures come from the metric store and may be older; their age is shown beside them.</span>
        </div>
      )}
      {site.shadow && (
        <div className="note slim" data-shadow={site.shadow.colour}>
          <strong className="row nowrap" style={{ gap: 6 }}>
            Policy {site.shadow.policy}, in shadow:
            <Shape colour={site.shadow.colour} size={11} />
            {formatScore(site.shadow.score)} {colourName[site.shadow.colour]}
          </strong>
          <span>
            {site.shadow.reason ? `${site.shadow.reason}. ` : ""}It counts for nothing. <Link href={shadowPath(site)}>How that score comes about</Link>
          </span>
        </div>
      )}
      <section className="dims" aria-label="Dimensions">
        {DIMENSIONS.map((d) => (
          <DimensionCard key={d} site={site} dimension={d}>
            {h && <Chart lines={lines.get(d)!} scale={SCORES} bands={SCORE_BANDS} start={h.start} end={h.end} height={36} label={`${dimensionName[d]} over the last ${range.label}`} at={at} onAt={setAt} />}
            {history.isPending && <Skeleton height={36} />}
          </DimensionCard>
        ))}
      </section>
      <div className="site-cols">
        <div className="stack">
          <Reasons site={site} />
          <section className="card" aria-label="History of the score">
            <header>
              <h2>Score</h2>
              <div className="segmented" role="group" aria-label="Time range">
                {RANGES.map((r) => (
                  <button key={r.id} type="button" aria-pressed={r.id === range.id} onClick={() => setRange(r)}>
                    {r.label}
                  </button>
                ))}
              </div>
            </header>
            <div className="body">
              {history.error && <ProblemNote error={history.error} doing="read the history" onRetry={() => void history.refetch()} />}
              {history.isPending && <Skeleton height={130} />}
              {h && !summarize(h.score, lines.get("")![0]!.between) && !history.error ? (
                <p className="muted">There are no samples of the score in this time. A new site's history starts with its first evaluation.</p>
              ) : (
                h && <Chart lines={lines.get("")!} scale={SCORES} bands={SCORE_BANDS} marks={marks} start={h.start} end={h.end} height={190} label={`Score over the last ${range.label}`} axis at={at} onAt={setAt} />
              )}
              {h && (
                <p className="muted small">
                  <BetweenNote range={range} known={scores !== undefined} error={between.error} />
                </p>
              )}
            </div>
          </section>
        </div>
        <div className="stack">
          <AlertPanel scope={{ tenant: site.tenant, site: site.name }} />
          <RolloutsOfSite site={site} />
          <ConditionsCard object={object.data} />
        </div>
      </div>
      <div className="site-cols">
        <div className="stack">
          <TimelinePanel scope={{ tenant: site.tenant, site: site.name }} />
          <SiteWorkloads site={site} />
          <SiteHosts site={site} virtualSites={site.virtualSites} />
          <MaintenanceWindows owner={{ site }} windows={object.data ? (object.data.maintenanceWindows ?? []) : undefined} error={object.data ? undefined : object.error} onRetry={() => void object.refetch()} />
        </div>
        <div className="stack">
          {hasPlace(site) && (
            <section className="card" aria-label="Place">
              <div className="locator" style={{ overflow: "hidden", display: "grid" }}>
                <WorldMap sites={[site]} still label={`Map with ${site.name}`} />
              </div>
              <p className="body small">
                {site.place?.address}{" "}
                <span className="muted">
                  {site.place?.latitude.toFixed(4)}, {site.place?.longitude.toFixed(4)}
                </span>
              </p>
            </section>
          )}
          <SiteFacts query={object} site={site} />
          <SiteResetCard object={object.data} />
        </div>
      </div>
      <SignalsTable site={site} signals={site.signals} reasons={site.reasons} />
    </>
  );
}

/** The control plane knows of a maintenance first; the next evaluation follows. */
function useMaintenanceOf(site: SiteDetail, object: SiteObject | undefined): Maintenance | null {
  const now = useNow();
  const m = object ? (object.maintenance ?? null) : site.maintenance;
  const until = parseTime(m?.until);
  return until !== undefined && until < now ? null : m;
}

function Header({ site, maintenance }: { site: SiteDetail; maintenance: Maintenance | null }) {
  return (
    <header className="site-head">
      <div className="site-score" data-site-colour={site.colour}>
        <Shape colour={site.colour} size={30} />
        <Link href={scorePath(site)} title="How this score comes about">
          {formatScore(site.score)}
        </Link>
      </div>
      <div style={{ minWidth: 0 }}>
        <h1>{site.name}</h1>
        <p className="muted">
          <span style={{ color: "var(--text)" }}>{colourName[site.colour]}</span>
          <For since={site.since} before=" " />
          {" · "}
          {site.phase}, seen <Ago time={site.lastSeen} />
          {" · "}
          {site.region || "no region"} · tenant {site.tenant} · <Link href={linkPath(site)}>link and services</Link> · <Link href={costPath(site)}>cost</Link>
        </p>
        {site.virtualSites.length > 0 && (
          <ul className="labels" style={{ marginTop: 6 }} aria-label="Virtual sites">
            {site.virtualSites.map((v) => {
              const i = v.indexOf("/");
              const [ns, n] = i < 0 ? ["shared", v] : [v.slice(0, i), v.slice(i + 1)];
              return (
                <li key={v}>
                  <Link className="chip" href={`/virtual-sites/${encodeURIComponent(ns)}/${encodeURIComponent(n)}?tenant=${encodeURIComponent(site.tenant)}`}>
                    {v}
                  </Link>
                </li>
              );
            })}
          </ul>
        )}
      </div>
      {!maintenance && (
        <div style={{ marginLeft: "auto" }}>
          <MaintenanceBar site={site} maintenance={null} />
        </div>
      )}
    </header>
  );
}

function DimensionCard({ site, dimension, children }: { site: SiteDetail; dimension: Dimension; children: React.ReactNode }) {
  const d = site.dimensions[dimension];
  const signals = site.signals.filter((s) => s.dimension === dimension && s.applies);
  const known = signals.filter((s) => s.known).length;
  const colour = d?.colour ?? "grey";
  return (
    <article className="card dim" aria-label={dimensionName[dimension]} data-dimension={dimension} data-colour={colour}>
      <h2>{dimensionName[dimension]}</h2>
      <div className="big">
        <Shape colour={colour} size={18} />
        {formatScore(d?.score)}
        <span className="muted small" style={{ fontWeight: 500 }}>
          {d?.known ? colourName[colour] : "Unknown"}
        </span>
      </div>
      <p className="muted small">
        {signals.length > 0 ? `${known} of ${plural(signals.length, "signal")} known` : "no signals apply"}
        {d && d.staleSeconds > 0 && (
          <>
            {" "}
            <span className="chip warn">stale, {formatDuration(d.staleSeconds)} old</span>
          </>
        )}
      </p>
      {children}
    </article>
  );
}

function Reasons({ site }: { site: SiteDetail }) {
  const units = new Map(site.signals.map((s) => [s.name, s.unit]));
  return (
    <section className="card" aria-label="Reasons">
      <header>
        <h2>Why</h2>
        <span className="row small muted">
          {site.reasons.length > 0 && <span>the costliest first</span>}
          <Link href={scorePath(site)}>How the score comes about</Link>
        </span>
      </header>
      {site.reasons.length === 0 ? (
        <p className="body muted">{site.score === null ? "Too little is known for a score; see the signals below." : "No signal costs this site points."}</p>
      ) : (
        <ol className="reasons">
          {site.reasons.map((r, i) => (
            <li key={`${r.dimension}/${r.signal}`} data-signal={r.signal}>
              <span className="rank">{i + 1}</span>
              <div>
                <strong>{r.text}</strong>
                <div className="muted small">
                  {dimensionName[r.dimension] ?? r.dimension}
                  {r.signal && (
                    <>
                      {" · "}
                      <Link href={signalPath(site, r.signal)}>
                        <code>{r.signal}</code>
                      </Link>
                    </>
                  )}
                  {r.value !== null && (
                    <>
                      {" · "}
                      {formatValue(r.value, units.get(r.signal))}
                      {r.threshold !== null && <> against {formatValue(r.threshold, units.get(r.signal))}</>}
                    </>
                  )}
                  <For since={r.since} before=" · " />
                </div>
              </div>
              <div className="lost">
                <span>{r.pointsLost > 0 ? `−${formatPoints(r.pointsLost)} points` : "no points"}</span>
                {r.pointsLost > 0 && <i aria-hidden style={{ "--lost": Math.min(100, r.pointsLost) } as React.CSSProperties} />}
              </div>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
