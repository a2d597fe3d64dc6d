import { useCallback, useMemo } from "react";
import { Link, useSearch } from "wouter";
import { useQuery } from "@tanstack/react-query";
import { sessionQuery } from "../api/queries";
import { useRollouts } from "../api/rollout-queries";
import type { Rollout } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { Phase, StepBar, StepCounts } from "../components/rollout-bits";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { useAddress } from "../components/virtual-picker";
import { DASH, formatCount, plural } from "../lib/format";
import { parseRolloutFilter, phaseName, PHASES, rolloutKey, rolloutPath, type RolloutFilter, targetOf } from "../lib/rollouts";
import { zoned } from "../lib/time";

/** All changes that go over sites, and those that went. */
export function RolloutsPage() {
  const search = useSearch();
  const filter = useMemo(() => parseRolloutFilter(search), [search]);
  const tenant = new URLSearchParams(search).get("tenant") ?? "";
  const query = useRollouts({ tenant, ...filter });
  const address = useAddress();
  useTitle("Rollouts");
  const rows = query.data?.pages.flatMap((p) => p.rollouts);
  const total = query.data?.pages[0]?.total ?? 0;
  const filtered = filter.q !== "" || filter.state !== "" || filter.phase !== "" || tenant !== "";
  return (
    <div className="page stack">
      <div className="page-head wide">
        <div>
          <h1>Rollouts</h1>
          <p className="muted">Changes that go over the sites wave by wave, as fast as health allows.</p>
        </div>
      </div>
      {query.error && <ProblemNote error={query.error} doing={rows ? "refresh the rollouts; these are older" : "load the rollouts"} onRetry={() => void query.refetch()} />}
      {(rows === undefined || rows.length > 0 || filtered) && <Filters filter={filter} tenant={tenant} onChange={address} />}
      {query.isPending && (
        <div className="card">
          <div className="body">
            <Skeleton height={32} count={5} />
          </div>
        </div>
      )}
      {rows?.length === 0 && (filtered ? <NoneMatches onClear={() => address({ q: "", state: "", phase: "", tenant: "" })} /> : <None />)}
      {rows && rows.length > 0 && (
        <>
          <Table rows={rows} />
          <div className="row wrap spread">
            <p className="muted small" role="status">
              {rows.length < total ? `${formatCount(rows.length)} of ${plural(total, "rollout")}` : plural(total, "rollout")}
            </p>
            {query.hasNextPage && (
              <button type="button" className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                Show more
              </button>
            )}
          </div>
        </>
      )}
    </div>
  );
}

function None() {
  return (
    <div className="card">
      <Empty title="No rollout yet">
        <p>With a RolloutPolicy in its namespace, an ordinary kubectl apply or helm upgrade that changes a workload becomes a rollout by itself. Or start one:</p>
        <Command text="muster rollout start --help" />
      </Empty>
    </div>
  );
}

function NoneMatches({ onClear }: { onClear: () => void }) {
  return (
    <div className="card">
      <Empty title="No rollout matches">
        <button type="button" className="button" onClick={onClear}>
          Clear filters
        </button>
      </Empty>
    </div>
  );
}

function Filters({ filter, tenant, onChange }: { filter: RolloutFilter; tenant: string; onChange: (c: Record<string, string>) => void }) {
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const [q, setQ] = useTyped(
    filter.q,
    useCallback((q: string) => onChange({ q }), [onChange]),
  );
  return (
    <form className="row wrap cost-filters" role="search" aria-label="Search and filter the rollouts" onSubmit={(e) => e.preventDefault()}>
      <input className="input" type="search" aria-label="Search rollouts" placeholder="Name or object…" maxLength={200} value={q} onChange={(e) => setQ(e.target.value)} />
      <div className="segmented" role="group" aria-label="Under way or not">
        {(["", "active", "ended"] as const).map((s) => (
          <button key={s} type="button" aria-pressed={filter.state === s} onClick={() => onChange({ state: s })}>
            {s === "" ? "All" : s === "active" ? "Under way" : "Ended"}
          </button>
        ))}
      </div>
      <select className={filter.phase ? "select set" : "select"} aria-label="Phase" value={filter.phase} onChange={(e) => onChange({ phase: e.target.value })}>
        <option value="">Any phase</option>
        {PHASES.map((p) => (
          <option key={p} value={p}>
            {phaseName[p]}
          </option>
        ))}
      </select>
      <TenantSelect value={tenant} tenants={tenants} width={150} onChange={(t) => onChange({ tenant: t })} />
    </form>
  );
}

function Table({ rows }: { rows: readonly Rollout[] }) {
  return (
    <div className="card table-wrap" tabIndex={0} role="region" aria-label="Table of rollouts">
      <table className="stacks rollouts">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Phase</th>
            <th scope="col">What changes</th>
            <th scope="col">Sites by step</th>
            <th scope="col" className="num">
              Wave
            </th>
            <th scope="col" className="num">
              Updated
            </th>
            <th scope="col" className="num">
              Failed
            </th>
            <th scope="col" className="num">
              Age
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={rolloutKey(r)} data-rollout={r.name}>
              <th scope="row" className="vs-name">
                <Link href={rolloutPath(r)}>{r.name}</Link>
                <div className="muted small">
                  {r.namespace} of {r.tenant}
                </div>
              </th>
              <td data-label="Phase" className="rollout-phase">
                <Phase phase={r.phase} />
              </td>
              <td data-label="What changes" className="why-cell target">
                {targetOf(r)}
                {r.changes[0]?.text && <div className="mono small">{r.changes[0].text}</div>}
                {r.message && (
                  <div className="muted small message" title={zoned(r.message)}>
                    {zoned(r.message)}
                  </div>
                )}
              </td>
              <td className="vs-bar">
                <StepBar counts={r.sites} />
                <div className="vs-counts">
                  <StepCounts counts={r.sites} />
                </div>
              </td>
              <td className="num" data-label="Wave">
                {r.progress || DASH}
              </td>
              <td className="num" data-label="Updated">
                {r.sites.total > 0 ? `${formatCount(r.sites.updated)}/${formatCount(r.sites.total)}` : DASH}
              </td>
              <td className={r.sites.failed > 0 ? "num bad-text" : "num"} data-label="Failed">
                {formatCount(r.sites.failed)}
              </td>
              <td className="num" data-label="Age">
                <Ago time={r.createdAt} none={DASH} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
