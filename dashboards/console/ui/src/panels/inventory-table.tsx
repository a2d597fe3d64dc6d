import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef } from "react";
import { Link } from "wouter";
import type { Colour, SiteField, SiteGroup, SiteRow } from "../api/types";
import { Shape } from "../components/shape";
import { Ago } from "../components/time";
import { COLOURS, colourName } from "../lib/colour";
import { DASH, formatCount, formatScore, plural } from "../lib/format";
import { columnTitle, kindOf, sortOf, widthOf } from "../lib/inventory";
import { siteKey, sitePath, type SiteRef } from "../lib/site";

const ROW = 36;

interface Props {
  columns: readonly string[];
  fields: readonly SiteField[] | undefined;
  rows: readonly SiteRow[];
  /** Sites of all pages; of the open group if there are groups. */
  total: number;
  groups: readonly SiteGroup[] | undefined;
  open: string | undefined;
  onOpen: (value: string | undefined) => void;
  sort: string;
  onSort: (column: string) => void;
  selected: ReadonlyMap<string, SiteRef>;
  onSelect: (site: SiteRef, on: boolean) => void;
  /** Whether all sites of the query are selected. */
  all: boolean;
  onAll: (on: boolean) => void;
  showTenant: boolean;
  /** The last row in sight: more are loaded when it comes near the end. */
  onReach: (row: number) => void;
}

type Item = { kind: "group"; group: SiteGroup } | { kind: "row"; index: number };

/** Sites as a table of which only the rows in sight are in the page. With groups, one of them is open. */
export function InventoryTable(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const items = useMemo<Item[]>(() => {
    const rows = Array.from({ length: p.total }, (_, index): Item => ({ kind: "row", index }));
    if (!p.groups) return rows;
    return p.groups.flatMap((group): Item[] => [{ kind: "group", group }, ...(group.value === p.open ? rows : [])]);
  }, [p.groups, p.open, p.total]);
  const virtual = useVirtualizer({ count: items.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12 });
  const inSight = virtual.getVirtualItems();
  const lastItem = inSight.length > 0 ? items[inSight[inSight.length - 1]!.index] : undefined;
  const reached = lastItem?.kind === "row" ? lastItem.index : -1;
  const { onReach } = p;
  useEffect(() => {
    if (reached >= 0) onReach(reached);
  }, [reached, onReach]);

  const widths = p.columns.map((c) => widthOf(c, kindOf(c, p.fields)));
  // Beside the name stands the tenant, where there is room for it.
  const atLeast = (px: number, column: string | undefined) => (column === "name" ? `calc(${px}px + var(--inv-tenant, 0px))` : `${px}px`);
  const template = `36px ${widths.map((w, i) => (w.share > 0 ? `minmax(${atLeast(w.px, p.columns[i])}, ${w.share}fr)` : `${w.px}px`)).join(" ")}`;
  const least = atLeast(36 + widths.reduce((n, w) => n + w.px, 0), "name");
  return (
    <div ref={box} className="inv-scroll" tabIndex={0} role="region" aria-label="Table of sites">
      <div className={p.showTenant ? "inv-table of-tenants" : "inv-table"} role="table" aria-label="Sites" aria-rowcount={items.length + 1} aria-colcount={p.columns.length + 1} style={{ minWidth: least }}>
        <div role="rowgroup" className="inv-head">
          <div role="row" aria-rowindex={1} className="inv-row" style={{ gridTemplateColumns: template }}>
            <div role="columnheader" className="inv-check">
              <input type="checkbox" aria-label="Select all sites of the query" checked={p.all} onChange={(e) => p.onAll(e.target.checked)} />
            </div>
            {p.columns.map((c, i) => {
              const sorted = sortOf(p.sort, c);
              return (
                <div key={c} role="columnheader" aria-sort={sorted} className={numeric(kindOf(c, p.fields)) ? "num" : i === 0 ? "inv-name" : undefined}>
                  <button type="button" className="sort truncate" title={c} onClick={() => p.onSort(c)}>
                    {columnTitle(c)}
                    <span aria-hidden>{sorted === "ascending" ? " ↑" : sorted === "descending" ? " ↓" : ""}</span>
                  </button>
                </div>
              );
            })}
          </div>
        </div>
        <div role="rowgroup" className="inv-body" style={{ height: virtual.getTotalSize() }}>
          {inSight.map((v) => {
            const item = items[v.index]!;
            const place = { transform: `translateY(${v.start}px)` };
            if (item.kind === "group") return <GroupRow key={`group ${item.group.value}`} group={item.group} index={v.index} style={place} columns={p.columns.length + 1} open={item.group.value === p.open} onOpen={p.onOpen} />;
            const s = p.rows[item.index];
            if (!s) {
              return (
                <div key={`wait ${item.index}`} role="row" aria-rowindex={v.index + 2} className="inv-row" style={place}>
                  <div role="cell" className="muted small inv-wait">
                    Loading…
                  </div>
                </div>
              );
            }
            const key = siteKey(s);
            const on = p.selected.has(key);
            return (
              <div key={key} role="row" aria-rowindex={v.index + 2} aria-selected={on} className={on ? "inv-row on" : "inv-row"} data-site={key} style={{ ...place, gridTemplateColumns: template }}>
                <div role="cell" className="inv-check">
                  <input type="checkbox" aria-label={`Select ${s.name}`} checked={on} onChange={(e) => p.onSelect({ tenant: s.tenant, name: s.name }, e.target.checked)} />
                </div>
                {p.columns.map((c) => (
                  <Cell key={c} site={s} column={c} kind={kindOf(c, p.fields)} showTenant={p.showTenant} />
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

const numeric = (kind: SiteField["kind"]): boolean => kind === "number";

function Cell({ site: s, column, kind, showTenant }: { site: SiteRow; column: string; kind: SiteField["kind"]; showTenant: boolean }) {
  const v = s[column];
  if (column === "name") {
    return (
      <div role="rowheader" className="inv-name truncate">
        <Shape colour={s["colour"] as Colour} size={12} label />
        <Link href={sitePath(s)} className="truncate" title={s.name}>
          {s.name}
        </Link>
        {s["maintenance"] === true && (
          <span className="muted small" title="In maintenance">
            ⚒<span className="visually-hidden"> in maintenance</span>
          </span>
        )}
        {showTenant && <span className="muted small inv-tenant truncate" title={s.tenant}>{s.tenant}</span>}
      </div>
    );
  }
  if (column === "colour") return <div role="cell">{colourName[v as Colour]}</div>;
  if (v === null || v === undefined || v === "") return <div role="cell" className={numeric(kind) ? "num muted" : "muted"}>{kind === "time" ? "never" : DASH}</div>;
  if (kind === "time") {
    return (
      <div role="cell">
        <Ago time={String(v)} />
      </div>
    );
  }
  if (typeof v === "number") return <div role="cell" className={column.startsWith("alerts") && v > 0 ? "num inv-hot" : "num"}>{column.startsWith("alerts") ? formatCount(v) : formatScore(v)}</div>;
  if (typeof v === "boolean") return <div role="cell">{v ? "yes" : "no"}</div>;
  const text = Array.isArray(v) ? v.join(", ") || DASH : v;
  return (
    <div role="cell" className="truncate" title={text}>
      {text}
    </div>
  );
}

function GroupRow({ group: g, index, style, columns, open, onOpen }: { group: SiteGroup; index: number; style: { transform: string }; columns: number; open: boolean; onOpen: (value: string | undefined) => void }) {
  return (
    <div role="row" aria-rowindex={index + 2} className="inv-row inv-group" style={style}>
      <div role="cell" aria-colspan={columns}>
        <button type="button" aria-expanded={open} data-group={g.value} onClick={() => onOpen(open ? undefined : g.value)}>
          <span aria-hidden className="inv-arrow">
            {open ? "▾" : "▸"}
          </span>
          <b className="truncate">{g.value || "(none)"}</b>
          <span>{plural(g.sites, "site")}</span>
          {COLOURS.filter((c) => g.counts[c] > 0).map((c) => (
            <span key={c} className="row" style={{ gap: 4 }}>
              <Shape colour={c} size={11} label />
              {formatCount(g.counts[c])}
            </span>
          ))}
          {g.mean !== null && (
            <span className="muted small">
              mean {formatScore(g.mean)}, worst {formatScore(g.worst)}
            </span>
          )}
        </button>
      </div>
    </div>
  );
}
