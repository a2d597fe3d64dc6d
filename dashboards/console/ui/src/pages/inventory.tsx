import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { Problem } from "../api/client";
import { allSites, downloadHref, type Outcome, useInventoryCounts, useInventoryRows, useSiteFields } from "../api/inventory-queries";
import { sessionQuery } from "../api/queries";
import { useLack } from "../api/rights";
import type { SitePage } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { QueryBox } from "../components/query-box";
import { RightButton } from "../components/right-button";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { type Bulk, BulkDialog } from "../dialogs/bulk";
import { COLOURS, colourName } from "../lib/colour";
import { formatCount, plural } from "../lib/format";
import { hasColour, nextSort, toggleColour, type View } from "../lib/inventory";
import type { Right } from "../lib/rights";
import { siteKey, type SiteRef } from "../lib/site";
import { useView } from "../lib/use-view";
import { ColumnChooser, GroupSelect, SavedViews } from "../panels/inventory-tools";
import { InventoryTable } from "../panels/inventory-table";

/** All sites as a table: one line of a query language finds any group of them, whatever their number. */
export function InventoryPage() {
  useTitle("Sites");
  const { view, change } = useView("/sites");
  const [, navigate] = useLocation();
  const [q, setQ] = useTyped(
    view.q,
    useCallback((text: string) => change({ q: text, open: undefined }), [change]),
  );
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const known = useSiteFields(view.tenant).data;
  const counts = useInventoryCounts(view);
  const groups = view.group ? counts.data?.groups : undefined;
  const open = groups?.find((g) => g.value === view.open);
  const rows = useInventoryRows(view, open?.query ?? "", !view.group || open !== undefined);
  const list = useHeld(rows.data, rows.error !== null);
  const loaded = useMemo(() => list?.pages.flatMap((p) => p.sites) ?? [], [list]);
  const total = view.group && !open ? 0 : (list?.pages.at(-1)?.total ?? 0);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = rows;
  const onReach = useCallback(
    (row: number) => {
      if (row >= loaded.length - 100 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [loaded.length, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  const selection = useSelection(view);
  const [bulk, setBulk] = useState<Bulk>();
  const [said, setSaid] = useState("");
  const error = counts.error ?? rows.error;
  const fault = error instanceof Problem && error.status === 400 ? error.fieldFault("q") : "";
  const page = useHeld(counts.data, counts.error !== null);
  const done = (o: Outcome, text: string) => {
    setBulk(undefined);
    setSaid(text);
    selection.set(new Map(o.failed.map((f) => [siteKey(f), { tenant: f.tenant, name: f.name }])));
  };
  return (
    <>
      <div className="inv">
        <div className="inv-top">
          <h1 className="visually-hidden">Sites</h1>
          <form role="search" aria-label="Query and view" className="inv-tools" onSubmit={(e) => e.preventDefault()}>
            <QueryBox value={q} onChange={setQ} known={known} fault={fault} />
            <div className="row wrap">
              <TenantSelect value={view.tenant} tenants={tenants} width={150} onChange={(tenant) => change({ tenant, open: undefined })} />
              <GroupSelect group={view.group} known={known} onChange={(group) => change({ group, open: undefined })} />
              <ColumnChooser columns={view.columns} known={known} onChange={(columns) => change({ columns })} />
            </div>
          </form>
          <div className="row wrap spread">
            <Counts page={page} view={view} onChange={change} />
            <div className="row wrap inv-side">
              <SavedViews view={view} tenants={tenants} onOpen={(v) => change(v)} />
              <a className="button" href={downloadHref(view, "csv")} download="sites.csv">
                CSV
              </a>
              <a className="button" href={downloadHref(view, "json")} download="sites.json">
                JSON
              </a>
            </div>
          </div>
          {page?.notes.map((n) => (
            <p key={n} className="note slim small" role="status">
              {n}
            </p>
          ))}
          {error && !fault && <ProblemNote slim error={error} doing={page ? "refresh the sites; these are older" : "load the sites"} onRetry={() => void Promise.all([counts.refetch(), rows.refetch()])} />}
          <p className="visually-hidden" role="status">
            {said}
          </p>
        </div>
        {(counts.isPending || (rows.isPending && !view.group)) && !error && (
          <div className="inv-wait">
            <Skeleton height={28} count={12} />
          </div>
        )}
        {page && page.total === 0 && !error && <NoSites page={page} onClear={() => navigate("/sites", { replace: true })} />}
        {page && page.total > 0 && (list || view.group) && (
          <InventoryTable columns={view.columns} fields={known?.fields} rows={open || !view.group ? loaded : []} total={total} groups={view.group ? (groups ?? []) : undefined} open={open?.value}
            onOpen={(value) => change({ open: value })} sort={view.sort} onSort={(c) => change({ sort: nextSort(view.sort, c) })} selected={selection.sites} onSelect={selection.toggle}
            all={selection.choosing || (selection.sites.size > 0 && selection.sites.size >= page.total)} onAll={(on) => void selection.all(on).catch((e: unknown) => setSaid(`The sites can't be listed: ${String(e)}`))} showTenant={tenants.length > 1 && !view.tenant} onReach={onReach} onEscape={() => selection.set(new Map())} />
        )}
        <SelectionBar sites={selection.sites} total={page?.total ?? 0} said={said} onBulk={(b) => {
          setSaid("");
          setBulk(b);
        }} onClear={() => selection.set(new Map())} />
      </div>
      {bulk && <BulkDialog what={bulk} sites={[...selection.sites.values()]} onClose={() => setBulk(undefined)} onDone={done} />}
    </>
  );
}

/** The last answer that was good, while the newest is not: a query that is being typed doesn't empty the table. */
function useHeld<T>(data: T | undefined, failed: boolean): T | undefined {
  const [last, setLast] = useState(data);
  if (data !== undefined && data !== last) setLast(data);
  return data ?? (failed ? last : undefined);
}

/** The sites that are chosen, by key. What is chosen goes when another set of sites is looked at. */
function useSelection(view: View) {
  const of = `${view.q}\n${view.tenant}`;
  const [sites, set] = useState<ReadonlyMap<string, SiteRef>>(new Map());
  const now = useRef(of);
  useEffect(() => {
    now.current = of;
    set(new Map());
  }, [of]);
  const toggle = useCallback((s: SiteRef, on: boolean) => {
    set((m) => {
      const next = new Map(m);
      if (on) next.set(siteKey(s), s);
      else next.delete(siteKey(s));
      return next;
    });
  }, []);
  const [choosing, setChoosing] = useState(false);
  const all = async (on: boolean) => {
    if (!on) return set(new Map());
    setChoosing(true);
    try {
      const found = await allSites(view);
      if (now.current === of) set(new Map(found.map((s) => [siteKey(s), s]))); // else they are another query's
    } finally {
      setChoosing(false);
    }
  };
  return { sites, set, toggle, all, choosing };
}

function Counts({ page, view, onChange }: { page: SitePage | undefined; view: View; onChange: (v: Partial<View>) => void }) {
  return (
    <div className="row wrap inv-counts">
      {COLOURS.map((c) => (
        <button key={c} type="button" aria-pressed={hasColour(view.q, c)} data-count={c} onClick={() => onChange({ q: toggleColour(view.q, c), open: undefined })}>
          <Shape colour={c} size={12} />
          {colourName[c]} <b>{page ? formatCount(page.counts[c]) : "–"}</b>
        </button>
      ))}
      <span className="muted small" aria-live="polite" data-testid="inventory-total">
        {page && (page.total === page.readable ? plural(page.total, "site") : `${formatCount(page.total)} of ${plural(page.readable, "site")}`)}
        {page && (
          <>
            , as of <Ago time={page.asOf} />
          </>
        )}
      </span>
    </div>
  );
}

function NoSites({ page, onClear }: { page: SitePage; onClear: () => void }) {
  if (page.readable === 0) {
    return (
      <Empty title="No sites yet">
        <p>Make a registration token; the command that it prints joins a machine.</p>
        <Command text="muster token create" />
      </Empty>
    );
  }
  return (
    <Empty title="No site matches">
      <p>{plural(page.readable, "site does", "sites do")} not fit the query.</p>
      <button type="button" className="button" onClick={onClear}>
        Show all sites
      </button>
    </Empty>
  );
}

const BULK: [Bulk, string, Right][] = [
  ["label", "Label…", "patch sites.muster.dev"],
  ["silence", "Silence…", "create silences.muster.dev"],
  ["maintenance", "Maintenance…", "patch sites.muster.dev"],
  ["endMaintenance", "End maintenance…", "patch sites.muster.dev"],
  ["approve", "Approve…", "patch sites.muster.dev"],
];

function SelectionBar({ sites, total, said, onBulk, onClear }: { sites: ReadonlyMap<string, SiteRef>; total: number; said: string; onBulk: (b: Bulk) => void; onClear: () => void }) {
  const tenants = useMemo(() => new Set([...sites.values()].map((s) => s.tenant)), [sites]);
  const lack = useLack("patch sites.muster.dev", tenants);
  const count = sites.size;
  if (count === 0) return said ? <div className="inv-selection small">{said}</div> : null;
  return (
    <div className="inv-selection row wrap" role="group" aria-label="What is done to the selected sites">
      <b>
        {formatCount(count)} of {plural(total, "site")} selected
      </b>
      {BULK.map(([what, text, need]) => (
        <RightButton key={what} need={need} tenants={tenants} onClick={() => onBulk(what)}>
          {text}
        </RightButton>
      ))}
      <button type="button" className="button quiet" onClick={onClear}>
        Clear
      </button>
      {(said || lack) && <span className="small muted">{said || lack}</span>}
    </div>
  );
}
