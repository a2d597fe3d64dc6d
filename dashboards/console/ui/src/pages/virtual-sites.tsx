import { useMemo, useState } from "react";
import { Link } from "wouter";
import { useVirtualSites } from "../api/queries";
import type { VirtualSite } from "../api/types";
import { CountsRow, StackedBar } from "../components/bars";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { colourOfScore } from "../lib/colour";
import { DASH, formatCount, formatScore, plural } from "../lib/format";
import { formatUnhealthy, sitePath, virtualSiteKey, virtualSitePath, virtualSiteRef } from "../lib/site";

type Column = "name" | "sites" | "mean" | "p10" | "worst" | "unhealthy";

const byName = (a: VirtualSite, b: VirtualSite) => (virtualSiteKey(a) < virtualSiteKey(b) ? -1 : 1);
const low = (v: number | null | undefined) => v ?? 101;
const ORDERS: Record<Column, (a: VirtualSite, b: VirtualSite) => number> = {
  name: (a, b) => byName(a, b),
  sites: (a, b) => b.sites - a.sites,
  mean: (a, b) => low(a.mean) - low(b.mean),
  p10: (a, b) => low(a.p10) - low(b.p10),
  worst: (a, b) => low(a.worst?.score) - low(b.worst?.score),
  unhealthy: (a, b) => (b.percentUnhealthy ?? -1) - (a.percentUnhealthy ?? -1),
};

export function VirtualSitesPage() {
  const { data, error, isPending, refetch } = useVirtualSites();
  const [order, setOrder] = useState<Column>("unhealthy");
  const [q, setQ] = useState("");
  useTitle("Virtual sites");
  const all = useMemo(() => [...(data?.values() ?? [])], [data]);
  const tenants = new Set(all.map((v) => v.tenant)).size > 1;
  const shown = useMemo(() => {
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    return all
      .filter((v) => words.every((w) => `${v.tenant} ${virtualSiteRef(v)} ${v.description ?? ""}`.toLowerCase().includes(w)))
      .sort((a, b) => ORDERS[order](a, b) || byName(a, b));
  }, [all, q, order]);
  const head = (c: Column, text: string, title: string, num = true) => (
    <th scope="col" className={num ? "num" : undefined} aria-sort={order === c ? (c === "sites" || c === "unhealthy" ? "descending" : "ascending") : "none"}>
      <button type="button" className="sort" title={title} onClick={() => setOrder(c)}>
        {text}
        <span aria-hidden>{order === c ? " ↓" : ""}</span>
      </button>
    </th>
  );
  return (
    <div className="page stack">
      <div className="page-head">
        <div>
          <h1>Virtual sites</h1>
          <p className="muted">Sets of sites, chosen by their labels. Sites in maintenance are left out of the scores and counted apart.</p>
        </div>
        {all.length > 5 && (
          <input className="input" style={{ width: 240 }} type="search" aria-label="Search virtual sites" placeholder="Search…" value={q} onChange={(e) => setQ(e.target.value)} />
        )}
      </div>
      {error && <ProblemNote error={error} doing={data ? "refresh the virtual sites; these are older" : "load the virtual sites"} onRetry={() => void refetch()} />}
      {isPending && (
        <div className="card body">
          <div className="body">
            <Skeleton height={32} count={6} />
          </div>
        </div>
      )}
      {data && all.length === 0 && (
        <div className="card">
          <Empty title="No virtual sites yet">
            <p>A virtual site is a label selector with a name. Sites join it by their labels alone.</p>
            <Command text="kubectl apply -f virtualsite.yaml" />
          </Empty>
        </div>
      )}
      {all.length > 0 && shown.length === 0 && (
        <div className="card">
          <Empty title="No virtual site matches">
            <button type="button" className="button" onClick={() => setQ("")}>
              Clear the search
            </button>
          </Empty>
        </div>
      )}
      {shown.length > 0 && (
        <div className="card table-wrap" tabIndex={0} role="region" aria-label="Table of virtual sites">
          <table className="stacks">
            <thead>
              <tr>
                {head("name", "Virtual site", "Sort by name", false)}
                {head("sites", "Sites", "Sort by size")}
                {head("mean", "Mean", "Mean score; sort the lowest first")}
                {head("p10", "p10", "10th percentile of the scores; sort the lowest first")}
                {head("worst", "Worst", "The lowest score; sort the lowest first", false)}
                <th scope="col">Sites by colour</th>
                {head("unhealthy", "Unhealthy", "Share of degraded and failing sites; sort the highest first")}
                <th scope="col" className="num">
                  Maintenance
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((v) => (
                <tr key={virtualSiteKey(v)}>
                  <th scope="row" className="vs-name">
                    <Link href={virtualSitePath(v)}>{virtualSiteRef(v)}</Link>
                    {tenants && <span className="muted small"> · {v.tenant}</span>}
                    {v.description && <div className="muted small">{v.description}</div>}
                  </th>
                  <td className="num" data-label="Sites">{formatCount(v.sites)}</td>
                  <td className="num score" data-label="Mean">{formatScore(v.mean)}</td>
                  <td className="num" data-label="p10">{formatScore(v.p10)}</td>
                  <td className="nowrap vs-worst" data-label="Worst">
                    {v.worst ? (
                      <span className="row" style={{ gap: 6 }}>
                        <Shape colour={colourOfScore(v.worst.score)} size={11} label />
                        <b>{formatScore(v.worst.score)}</b>
                        <Link href={sitePath({ tenant: v.tenant, name: v.worst.site })}>{v.worst.site}</Link>
                      </span>
                    ) : (
                      DASH
                    )}
                  </td>
                  <td className="vs-bar">
                    <StackedBar counts={v.counts} />
                    <div className="vs-counts">
                      <CountsRow counts={v.counts} />
                    </div>
                  </td>
                  <td className="num" data-label="Unhealthy">{formatUnhealthy(v)}</td>
                  <td className="num" data-label="Maintenance">{v.maintenance > 0 ? formatCount(v.maintenance) : DASH}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {all.length > 0 && <p className="muted small">{plural(all.length, "virtual site")}</p>}
    </div>
  );
}
