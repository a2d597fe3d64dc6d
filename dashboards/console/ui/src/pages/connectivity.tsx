import { useQuery } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { useLocation } from "wouter";
import { Problem } from "../api/client";
import { useSiteFields } from "../api/inventory-queries";
import { useVirtualHosts } from "../api/host-queries";
import { useLinks } from "../api/link-queries";
import { sessionQuery } from "../api/queries";
import type { LinkPage as Page, SiteFields } from "../api/types";
import { CountsRow, countsText } from "../components/bars";
import { TenantSelect, useTyped } from "../components/filters";
import { QueryBox } from "../components/query-box";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { formatCount, plural } from "../lib/format";
import { both, columnTitle, formatView } from "../lib/inventory";
import { useView } from "../lib/use-view";
import { HostLinks } from "../panels/host-links";
import { LinkPicture } from "../panels/link-picture";
import { LinkTable } from "../panels/link-table";

/** Regionals that are drawn before somebody asks for all, where there are more than two beyond them. */
const DRAWN = 4;

/** The links between regionals and sites: a picture of them in groups, and one by one. */
export function ConnectivityPage() {
  useTitle("Connectivity");
  const { view, change } = useView("/connectivity");
  const [, navigate] = useLocation();
  const [q, setQ] = useTyped(view.q, useCallback((text: string) => change({ q: text }), [change]));
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const known = useSiteFields(view.tenant).data;
  const by = view.group || "region";
  const found = useLinks({ q: view.q, tenant: view.tenant, sort: view.sort, by });
  const fault = found.error instanceof Problem && found.error.status === 400 ? found.error.fieldFault("q") : "";
  const first = found.data?.pages[0];
  const links = found.data?.pages.flatMap((p) => p.links) ?? [];
  const hrefOf = (query: string) => `/connectivity?${formatView({ ...view, q: both(view.q, query) })}`;
  return (
    <div className="page stack">
      <div className="page-head wide">
        <div>
          <h1>Connectivity</h1>
          <p className="muted">The links between sites and regionals, as the sites measure them. A line has the colour of the worst tenth of its links, and is thicker the more there are.</p>
        </div>
      </div>
      <form role="search" aria-label="Query" className="link-query" onSubmit={(e) => e.preventDefault()}>
        <QueryBox value={q} onChange={setQ} known={known} fault={fault} />
        <By value={by} known={known} onChange={(group) => change({ group: group === "region" ? "" : group })} />
        <TenantSelect value={view.tenant} tenants={tenants} width={150} onChange={(tenant) => change({ tenant })} />
      </form>
      {found.error && !fault && <ProblemNote error={found.error} doing={first ? "refresh the links; these are older" : "load the links"} onRetry={() => void found.refetch()} />}
      {found.isPending && !found.error && <Skeleton height={180} count={3} />}
      {first && first.total === 0 && <Nothing page={first} onAll={() => navigate("/connectivity", { replace: true })} />}
      {first && first.total > 0 && (
        <>
          <Head page={first} />
          <Pictures page={first} hrefOf={hrefOf} />
          <BetweenSites tenant={view.tenant} />
          <h2>{view.sort ? "Links" : "Links, the worst first"}</h2>
          <LinkTable links={links} sort={view.sort} tenants={tenants.length > 1} onSort={(sort) => change({ sort })} />
          <div className="row wrap spread">
            <p className="muted small" role="status">
              {formatCount(links.length)} of {plural(first.total, "link")}
            </p>
            {found.hasNextPage && (
              <button type="button" className="button" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
                {found.isFetchingNextPage ? "Loading…" : "Load more"}
              </button>
            )}
          </div>
        </>
      )}
    </div>
  );
}

function Head({ page }: { page: Page }) {
  return (
    <>
      <p className="row wrap" role="status" data-ready>
        <span className="visually-hidden">Connectivity: {countsText(page.counts)}</span>
        <CountsRow counts={page.counts} />
        <span className="muted small">
          {page.total === page.readable ? plural(page.total, "link") : `${formatCount(page.total)} of ${plural(page.readable, "link")}`}, as of <Ago time={page.asOf} />
        </span>
      </p>
      {page.notes.map((n) => (
        <p key={n} className="note slim small" role="status">
          {n}
        </p>
      ))}
    </>
  );
}

function Pictures({ page, hrefOf }: { page: Page; hrefOf: (query: string) => string }) {
  const [all, setAll] = useState(false);
  const more = page.regionals.length > DRAWN + 2 ? page.regionals.length - DRAWN : 0;
  return (
    <>
      <div className="link-pictures">
        {(all || more === 0 ? page.regionals : page.regionals.slice(0, DRAWN)).map((r) => (
          <LinkPicture key={r.name} regional={r} by={columnTitle(page.by)} hrefOf={hrefOf} />
        ))}
      </div>
      {more > 0 && (
        <button type="button" className="button start" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer regionals" : `Show ${plural(more, "more regional")}`}
        </button>
      )}
    </>
  );
}

/** The links between services of sites, of each tenant that has virtual hosts. They do not follow the query, which is about links to regionals. */
function BetweenSites({ tenant }: { tenant: string }) {
  const tenants = [...new Set(useVirtualHosts(tenant).data?.map((h) => h.tenant))].sort();
  return tenants.map((t) => <HostLinks key={t} tenant={t} host="" />);
}

/** What the sites of a regional are grouped by. */
function By({ value, known, onChange }: { value: string; known: SiteFields | undefined; onChange: (by: string) => void }) {
  const labels = known?.labels.map((l) => (known.fields.some((f) => f.name === l.key) ? `label.${l.key}` : l.key)) ?? [];
  const options = [...new Set(["region", "virtualSite", "version", ...labels.filter((l) => l !== "label.region"), value])];
  return (
    <select className={value === "region" ? "select" : "select set"} aria-label="Group by" style={{ width: 160 }} value={value} onChange={(e) => onChange(e.target.value)}>
      {options.map((o) => (
        <option key={o} value={o}>
          by {columnTitle(o).toLowerCase()}
        </option>
      ))}
    </select>
  );
}

function Nothing({ page, onAll }: { page: Page; onAll: () => void }) {
  return page.readable === 0 ? (
    <Empty title="No sites yet">
      <p>Make a registration token; the command that it prints joins a machine.</p>
      <Command text="muster token create" />
    </Empty>
  ) : (
    <Empty title="No site matches">
      <p>{plural(page.readable, "site does", "sites do")} not fit the query.</p>
      <button type="button" className="button" onClick={onAll}>
        Show all links
      </button>
    </Empty>
  );
}
