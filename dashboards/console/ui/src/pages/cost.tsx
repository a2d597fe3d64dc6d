import { useCallback, useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useQuery } from "@tanstack/react-query";
import { type CostFilter, useCost } from "../api/cost-queries";
import { sessionQuery } from "../api/queries";
import type { CostBy, CostPage as Page, CostRow, CostSort, RegionalRoom, Resource } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { COST_BY, COST_COLUMNS, headroomText, resourceName, resourceUnit } from "../lib/cost";
import { DASH, formatCount, formatPercent, formatValue, plural } from "../lib/format";
import { costPath } from "../lib/site";

const NAMES: Record<CostBy, string> = { site: "Site", virtualsite: "Virtual site", tenant: "Tenant" };

function parse(search: string): CostFilter {
  const q = new URLSearchParams(search);
  const by = COST_BY.find((b) => b.by === q.get("by"))?.by ?? "site";
  const sort = q.get("sort") === "name" ? "name" : (COST_COLUMNS.find((c) => c.sort === q.get("sort"))?.sort ?? "series");
  return { by, sort, tenant: q.get("tenant") ?? "", virtualSite: q.get("virtualSite") ?? "", q: q.get("q") ?? "" };
}

function hrefOf(f: CostFilter): string {
  const q = new URLSearchParams();
  if (f.by !== "site") q.set("by", f.by);
  if (f.sort !== "series") q.set("sort", f.sort);
  for (const k of ["tenant", "virtualSite", "q"] as const) if (f[k]) q.set(k, f[k]);
  const s = q.toString();
  return s ? `/cost?${s}` : "/cost";
}

const none: CostFilter = { by: "site", sort: "series", tenant: "", virtualSite: "", q: "" };

/** What sites, virtual sites and tenants take of the regionals, and for how many more there is room. */
export function CostPage() {
  const search = useSearch();
  const filter = useMemo(() => parse(search), [search]);
  const [, navigate] = useLocation();
  const change = useCallback((f: Partial<CostFilter>) => navigate(hrefOf({ ...filter, ...f }), { replace: true }), [filter, navigate]);
  const list = useCost(filter);
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  useTitle("Cost");
  const first = list.data?.pages[0];
  const rows = useMemo(() => list.data?.pages.flatMap((p) => p.rows) ?? [], [list.data]);
  const narrowed = filter.q !== "" || filter.virtualSite !== "" || filter.tenant !== "";
  return (
    <div className="page stack">
      <div>
        <h1>Cost</h1>
        <p className="muted">
          What sites take of the regionals. Rates are means over the last minutes; processor time and memory are estimates of a share, as series and pushes use them.
        </p>
      </div>
      {list.error && <ProblemNote error={list.error} doing={first ? "refresh the figures; these are older" : "load the figures"} onRetry={() => void list.refetch()} />}
      {first && first.missingRegions.length > 0 && <Missing page={first} />}
      {first?.regionals && (
        <section className="headroom" aria-label="Room for more sites">
          {first.regionals.map((r) => (
            <Room key={r.name} room={r} />
          ))}
        </section>
      )}
      <Filters filter={filter} tenants={tenants} onChange={change} />
      {list.isPending && (
        <div className="card">
          <div className="body">
            <Skeleton height={28} count={8} />
          </div>
        </div>
      )}
      {first && rows.length === 0 && (
        <div className="card">
          <Empty title={narrowed ? "Nothing matches" : "There are no sites yet"}>
            <p>{narrowed ? "No row fits the search and filters." : "What they take is shown within minutes of the first push."}</p>
            {narrowed && (
              <button type="button" className="button" onClick={() => navigate(hrefOf({ ...none, by: filter.by }), { replace: true })}>
                Clear filters
              </button>
            )}
          </Empty>
        </div>
      )}
      {first && rows.length > 0 && (
        <>
          <Table page={first} rows={rows} filter={filter} tenants={tenants.length > 1} onSort={(sort) => change({ sort })} />
          <div className="row wrap spread">
            <p className="muted small" role="status">
              {first.total > rows.length ? `${formatCount(rows.length)} of ${formatCount(first.total)}` : formatCount(rows.length)} {COST_BY.find((b) => b.by === filter.by)!.text.toLowerCase()}, as of{" "}
              <Ago time={first.asOf} />
            </p>
            {list.hasNextPage && (
              <button type="button" className="button" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
                {list.isFetchingNextPage ? "Loading…" : "Load more"}
              </button>
            )}
          </div>
        </>
      )}
    </div>
  );
}

/** Which regionals the figures are without. */
export function Missing({ page }: { page: Pick<Page, "missingRegions"> }) {
  return (
    <div className="note slim" role="alert">
      <strong>
        The figures lack {plural(page.missingRegions.length, "regional")}
        {page.missingRegions.some((m) => m.late) && " so far: still asking"}
      </strong>
      <span>{page.missingRegions.map((m) => `${m.region}: ${m.reason}`).join("; ")}</span>
    </div>
  );
}

function Room({ room }: { room: RegionalRoom }) {
  const h = room.headroom;
  return (
    <article className="card" aria-label={`Regional ${room.name}`} data-regional={room.name}>
      <header>
        <h2>{room.name}</h2>
        {room.region && <span className="muted small">{room.region}</span>}
      </header>
      <div className="body stack">
        <p>
          <b>{headroomText(room)}</b>
          {h.first && <span className="muted"> · {(resourceName[h.first] ?? h.first).toLowerCase()} ends first</span>}
        </p>
        <dl className="room">
          {h.resources.map((r) => (
            <ResourceRow key={r.name} resource={r} first={r.name === h.first} />
          ))}
        </dl>
      </div>
    </article>
  );
}

function ResourceRow({ resource: r, first }: { resource: Resource; first: boolean }) {
  const unit = resourceUnit[r.name] ?? "";
  const name = resourceName[r.name] ?? r.name;
  const share = r.limit > 0 ? Math.min(1, r.used / r.limit) : null;
  return (
    <div className={first ? "quota full" : "quota"}>
      <dt>{name}</dt>
      <dd>
        <span>
          <b>{formatValue(r.used, r.limit > 0 && unit === "cores" ? "" : unit)}</b> {r.limit > 0 ? `of ${formatValue(r.limit, unit)}` : "without a limit"}
        </span>
        {share !== null && <meter min={0} max={1} value={share} low={0.8} high={0.999} optimum={0} aria-label={`${name}: ${formatPercent(Math.floor(share * 100))} used`} />}
        <span className="muted small">
          {r.perSite > 0 ? `${formatValue(r.perSite, unit)} a site` : DASH}
          {r.moreSites !== null && r.moreSites !== undefined && `, room for ${formatCount(r.moreSites)}`}
        </span>
        {r.others !== undefined && r.others > 0 && <span className="small">Other processes of this machine take {formatValue(r.others, unit)}: they count as used up.</span>}
      </dd>
    </div>
  );
}

function Filters({ filter, tenants, onChange }: { filter: CostFilter; tenants: readonly string[]; onChange: (f: Partial<CostFilter>) => void }) {
  const [q, setQ] = useTyped(
    filter.q,
    useCallback((q: string) => onChange({ q }), [onChange]),
  );
  return (
    <form className="row wrap cost-filters" role="search" aria-label="Search and filter the figures" onSubmit={(e) => e.preventDefault()}>
      <div className="segmented" role="group" aria-label="What the rows are">
        {COST_BY.map((b) => (
          <button key={b.by} type="button" aria-pressed={b.by === filter.by} onClick={() => onChange({ by: b.by, virtualSite: "" })}>
            {b.text}
          </button>
        ))}
      </div>
      <input className="input" type="search" aria-label="Search by name" placeholder="Search by name…" maxLength={200} value={q} onChange={(e) => setQ(e.target.value)} />
      <TenantSelect value={filter.tenant} tenants={tenants} onChange={(tenant) => onChange({ tenant })} />
      {filter.virtualSite && (
        <button type="button" className="button" onClick={() => onChange({ virtualSite: "" })}>
          Only {filter.virtualSite} <span aria-hidden>×</span>
          <span className="visually-hidden"> remove this filter</span>
        </button>
      )}
    </form>
  );
}

function Table({ page, rows, filter, tenants, onSort }: { page: Page; rows: readonly CostRow[]; filter: CostFilter; tenants: boolean; onSort: (s: CostSort) => void }) {
  const by = page.by;
  const head = (sort: CostSort, text: string, title: string, num: boolean) => (
    <th key={sort} scope="col" className={num ? "num" : undefined} aria-sort={filter.sort !== sort ? "none" : sort === "name" ? "ascending" : "descending"}>
      <button type="button" className="sort" title={title} onClick={() => onSort(sort)}>
        {text}
        <span aria-hidden>{filter.sort === sort ? " ↓" : ""}</span>
      </button>
    </th>
  );
  return (
    <div className="card table-wrap" tabIndex={0} role="region" aria-label="Table of costs">
      <table className="stacks">
        <thead>
          <tr>
            {head("name", NAMES[by], "Sort by name", false)}
            {by !== "site" && (
              <th scope="col" className="num">
                Sites
              </th>
            )}
            {COST_COLUMNS.map((c) => head(c.sort, c.text, c.title, true))}
            {by === "tenant" && (
              <th scope="col" className="num">
                More sites
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={`${r.tenant}/${r.namespace ?? ""}/${r.name ?? ""}`} data-cost={r.name ?? r.tenant}>
              <th scope="row" className="vs-name">
                <RowName row={r} by={by} filter={filter} />
                {tenants && by !== "tenant" && <span className="muted small"> · {r.tenant}</span>}
              </th>
              {by !== "site" && (
                <td className="num" data-label="Sites">
                  {formatCount(r.sites)}
                </td>
              )}
              {COST_COLUMNS.map((c) => (
                <td key={c.sort} className="num nowrap" data-label={c.text}>
                  {c.value(r.use)}
                </td>
              ))}
              {by === "tenant" && (
                <td className="num" data-label="More sites" title={r.seriesLimit ? `Of ${formatCount(r.seriesLimit)} series ${formatCount(r.use.series)} are used` : "There is no limit of series"}>
                  {r.moreSites === null || r.moreSites === undefined ? DASH : formatCount(r.moreSites)}
                </td>
              )}
            </tr>
          ))}
        </tbody>
        {rows.length > 1 && (
          <tfoot>
            <tr>
              <th scope="row" className="vs-name">
                All {formatCount(page.total)}
              </th>
              {by !== "site" && <td />}
              {COST_COLUMNS.map((c) => (
                <td key={c.sort} className="num nowrap" data-label={c.text}>
                  {c.value(page.sum)}
                </td>
              ))}
              {by === "tenant" && <td />}
            </tr>
          </tfoot>
        )}
      </table>
    </div>
  );
}

function RowName({ row: r, by, filter }: { row: CostRow; by: CostBy; filter: CostFilter }) {
  switch (by) {
    case "site":
      return <Link href={costPath({ tenant: r.tenant, name: r.name ?? "" })}>{r.name}</Link>;
    case "virtualsite": {
      const ref = `${r.namespace}/${r.name}`;
      return <Link href={hrefOf({ ...none, sort: filter.sort, tenant: r.tenant, virtualSite: ref })}>{ref}</Link>;
    }
    default:
      return <Link href={hrefOf({ ...none, sort: filter.sort, tenant: r.tenant })}>{r.tenant}</Link>;
  }
}
