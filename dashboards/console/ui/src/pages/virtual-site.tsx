import { useCallback, useMemo, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useInventoryRows } from "../api/inventory-queries";
import { useSiteMap } from "../api/map-queries";
import { useVirtualSites } from "../api/queries";
import type { VirtualSite } from "../api/types";
import { useVirtualSiteWindows } from "../api/window-queries";
import { AlertPanel } from "../components/alert-panel";
import { CountsRow, StackedBar } from "../components/bars";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { LIST_COLUMNS, SiteList } from "../components/site-list";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { colourOfScore } from "../lib/colour";
import { DASH, formatCount, formatScore, plural } from "../lib/format";
import { parseView } from "../lib/inventory";
import { formatUnhealthy, sitePath, type SiteRef, virtualSiteKey, virtualSiteRef } from "../lib/site";
import { spotsOf } from "../map/spots";
import { WorldMap } from "../map/world-map";
import { TimelinePanel } from "../panels/timeline-panel";
import { VirtualSiteTrend } from "../panels/virtual-site-trend";
import { MaintenanceWindows } from "../panels/maintenance-windows";

export function VirtualSitePage({ namespace, name }: { namespace: string; name: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const list = useVirtualSites();
  const [, navigate] = useLocation();
  const [lit, setLit] = useState<string | null>(null);
  useTitle(`${namespace}/${name}`);
  const found = useMemo(
    () => [...(list.data?.values() ?? [])].filter((v) => v.namespace === namespace && v.name === name && (!tenant || v.tenant === tenant)),
    [list.data, namespace, name, tenant],
  );
  const vs = found[0];
  const view = useMemo(() => ({ ...parseView(""), q: `virtualSite="${namespace}/${name}"`, tenant: vs?.tenant ?? "", sort: "score", columns: LIST_COLUMNS }), [namespace, name, vs?.tenant]);
  const members = useInventoryRows(view, "", vs !== undefined);
  const rows = useMemo(() => members.data?.pages.flatMap((p) => p.sites) ?? [], [members.data]);
  const total = members.data?.pages.at(-1)?.total ?? 0;
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = members;
  const onReach = useCallback(
    (row: number) => {
      if (row >= rows.length - 50 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [rows.length, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  const map = useSiteMap({ q: view.q, tenant: view.tenant, by: "" }, vs !== undefined);
  const { spots } = useMemo(() => spotsOf(map.data), [map.data]);
  const open = useCallback((s: SiteRef) => navigate(sitePath(s)), [navigate]);
  const unplaced = map.data?.unplaced ?? 0;
  return (
    <div className="page stack">
      <div>
        <p className="crumb">
          <Link href="/virtual-sites">← Virtual sites</Link>
        </p>
        <h1>{`${namespace}/${name}`}</h1>
        <p className="muted">
          {vs && <>Tenant {vs.tenant}</>}
          {vs?.description && <> · {vs.description}</>}
        </p>
      </div>
      {list.error && <ProblemNote error={list.error} doing="load the virtual site" onRetry={() => void list.refetch()} />}
      {list.isPending && <Skeleton height={60} />}
      {list.data && !vs && (
        <div className="card">
          <Empty title="There is no such virtual site">
            <p>
              <code>{`${namespace}/${name}`}</code> does not exist, or you may not read its tenant.
            </p>
            <Link href="/virtual-sites" className="button">
              All virtual sites
            </Link>
          </Empty>
        </div>
      )}
      {found.length > 1 && (
        <div className="note slim">
          Several tenants have one of this name; this is {vs?.tenant}'s. Others: {found.slice(1).map((v) => v.tenant).join(", ")}
        </div>
      )}
      {vs && (
        <>
          <dl className="figures">
            <Figure label="Mean">
              <Shape colour={colourOfScore(vs.mean)} /> {formatScore(vs.mean)}
            </Figure>
            <Figure label="10th percentile">
              <Shape colour={colourOfScore(vs.p10)} /> {formatScore(vs.p10)}
            </Figure>
            <Figure label="Worst">
              {vs.worst ? (
                <>
                  <Shape colour={colourOfScore(vs.worst.score)} /> {formatScore(vs.worst.score)}
                  <small>
                    <Link href={sitePath({ tenant: vs.tenant, name: vs.worst.site })}>{vs.worst.site}</Link>
                  </small>
                </>
              ) : (
                DASH
              )}
            </Figure>
            <Figure label="Unhealthy">{formatUnhealthy(vs)}</Figure>
            <Figure label="Sites">{formatCount(vs.sites)}</Figure>
            <Figure label="In maintenance">{formatCount(vs.maintenance)}</Figure>
          </dl>
          <div className="card">
            <div className="body" style={{ display: "grid", gap: 6 }}>
              <StackedBar counts={vs.counts} height={14} />
              <CountsRow counts={vs.counts} />
            </div>
          </div>
          <VirtualSiteTrend of={vs} />
          <div className="vs-pair">
            <AlertPanel showSite scope={{ tenant: vs.tenant, virtualSite: virtualSiteRef(vs) }} />
            <Windows key={virtualSiteKey(vs)} of={vs} />
          </div>
          <TimelinePanel showSite scope={{ tenant: vs.tenant, virtualSite: virtualSiteRef(vs) }} />
          <div className="vs-split">
            <section className="card">
              <header>
                <h2>Members</h2>
                <Link href={`/?${new URLSearchParams({ q: view.q, ...(tenant ? { tenant } : {}) }).toString()}`}>Show on the fleet page</Link>
              </header>
              {members.error && <ProblemNote error={members.error} doing="load the members" onRetry={() => void members.refetch()} />}
              {members.isPending && (
                <div className="body">
                  <Skeleton height={40} count={5} />
                </div>
              )}
              {members.data && total === 0 ? (
                <Empty title="No members">
                  <p>No site that you may read has labels that match its selector.</p>
                </Empty>
              ) : (
                <SiteList rows={rows} total={total} onReach={onReach} label={`Members of ${virtualSiteRef(vs)}, worst first`} lit={lit} onLit={setLit} />
              )}
            </section>
            <section className="card">
              <header>
                <h2>Map</h2>
                {unplaced > 0 && <span className="muted small">{plural(unplaced, "member has", "members have")} no place</span>}
              </header>
              <WorldMap sites={spots} onOpen={open} lit={lit} onLit={setLit} label={`Map of the members of ${virtualSiteRef(vs)}`} />
            </section>
          </div>
        </>
      )}
    </div>
  );
}

function Windows({ of: v }: { of: VirtualSite }) {
  const windows = useVirtualSiteWindows(v);
  return <MaintenanceWindows owner={{ virtualSite: v }} windows={windows.data} error={windows.error} onRetry={() => void windows.refetch()} />;
}

function Figure({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
