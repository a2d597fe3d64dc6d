import { useVirtualizer } from "@tanstack/react-virtual";
import { type FocusEvent, type KeyboardEvent, type RefObject, useEffect, useId, useMemo, useRef, useState } from "react";
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
  /** Escape was pressed in the table. */
  onEscape: () => void;
}

/** What the keys move between in a row: its box, or its link or button. */
const CONTROLS = ["input", "a, button"] as const;

type Item = { kind: "group"; group: SiteGroup } | { kind: "row"; index: number };

/** Sites as a table of which only the rows in sight are in the page. With groups, one of them is open. */
export function InventoryTable(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const items = useMemo<Item[]>(() => {
    const rows = Array.from({ length: p.total }, (_, index): Item => ({ kind: "row", index }));
    if (!p.groups) return rows;
    return p.groups.flatMap((group): Item[] => [{ kind: "group", group }, ...(group.value === p.open ? rows : [])]);
  }, [p.groups, p.open, p.total]);
  const virtual = useVirtualizer({ count: items.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12, scrollPaddingEnd: 2 * ROW }); // the head and the hint lie over the rows
  const inSight = virtual.getVirtualItems();
  const lastItem = inSight.length > 0 ? items[inSight[inSight.length - 1]!.index] : undefined;
  const reached = lastItem?.kind === "row" ? lastItem.index : -1;
  const { onReach } = p;
  useEffect(() => {
    if (reached >= 0) onReach(reached);
  }, [reached, onReach]);

  const hint = useId();
  const keys = useKeys(box, items.length, virtual.scrollToIndex, p);
  const tab = inSight.some((v) => v.index === keys.at) ? keys.at : (virtual.range?.startIndex ?? 0);
  const widths = p.columns.map((c) => widthOf(c, kindOf(c, p.fields)));
  // Beside the name stands the tenant, where there is room for it.
  const atLeast = (px: number, column: string | undefined) => (column === "name" ? `calc(${px}px + var(--inv-tenant, 0px))` : `${px}px`);
  const template = `36px ${widths.map((w, i) => (w.share > 0 ? `minmax(${atLeast(w.px, p.columns[i])}, ${w.share}fr)` : `${w.px}px`)).join(" ")}`;
  const least = atLeast(36 + widths.reduce((n, w) => n + w.px, 0), "name");
  return (
    <div ref={box} className="inv-scroll" tabIndex={0} role="region" aria-label="Table of sites" aria-describedby={hint} onKeyDown={keys.onKeyDown} onFocus={keys.onFocus} onPointerDown={keys.onPointerDown}>
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
            if (item.kind === "group") return <GroupRow key={`group ${item.group.value}`} group={item.group} index={v.index} style={place} columns={p.columns.length + 1} open={item.group.value === p.open} onOpen={p.onOpen} tab={v.index === tab} />;
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
                  <input type="checkbox" tabIndex={v.index === tab ? 0 : -1} aria-label={`Select ${s.name}`} checked={on} onChange={(e) => p.onSelect({ tenant: s.tenant, name: s.name }, e.target.checked)} />
                </div>
                {p.columns.map((c) => (
                  <Cell key={c} site={s} column={c} kind={kindOf(c, p.fields)} showTenant={p.showTenant} tab={v.index === tab} />
                ))}
              </div>
            );
          })}
        </div>
      </div>
      <p id={hint} className="inv-keys small" aria-hidden>
        Arrow keys, Home and End go from row to row · Space selects · Enter opens · Escape takes the selection back
      </p>
    </div>
  );
}

/** The keys of the table: one row at a time takes the focus, and those that are not in the page yet take it when they come. */
function useKeys(box: RefObject<HTMLDivElement | null>, count: number, scrollTo: (index: number) => void, { onEscape }: Props) {
  const [at, setAt] = useState(0);
  const wanted = useRef<{ index: number; control: string }>(undefined);
  const take = () => {
    const w = wanted.current;
    const row = w && box.current?.querySelector(`.inv-body [aria-rowindex="${w.index + 2}"]`);
    const el = row?.querySelector<HTMLElement>(w!.control) ?? row?.querySelector<HTMLElement>("a, button");
    if (!el) return;
    wanted.current = undefined;
    el.focus({ preventScroll: true });
  };
  useEffect(take);
  const go = (index: number, control: string) => {
    wanted.current = { index, control };
    scrollTo(index);
    take();
    if (wanted.current) box.current?.focus({ preventScroll: true }); // the row that had it may go
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const el = e.target as HTMLElement;
    const row = el.closest<HTMLElement>(".inv-body .inv-row");
    wanted.current = undefined;
    if (e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "Escape") return onEscape();
    if (!row) return;
    const from = Number(row.getAttribute("aria-rowindex")) - 2;
    const to = { ArrowDown: from + 1, ArrowUp: from - 1, Home: 0, End: count - 1 }[e.key];
    if (to !== undefined) go(Math.min(Math.max(to, 0), count - 1), CONTROLS.find((c) => el.matches(c))!);
    else if (e.key === "ArrowLeft" || e.key === "ArrowRight") row.querySelector<HTMLElement>(CONTROLS[e.key === "ArrowLeft" ? 0 : 1])?.focus({ preventScroll: true });
    else if (e.key === " " && el.matches("a")) row.querySelector<HTMLElement>("input")?.click();
    else if (e.key === "Enter" && el.matches("input")) row.querySelector<HTMLElement>("a")?.click();
    else return;
    e.preventDefault();
  };
  const onFocus = (e: FocusEvent) => {
    const row = e.target.closest(".inv-body .inv-row");
    if (row) setAt(Number(row.getAttribute("aria-rowindex")) - 2);
  };
  return { at, onKeyDown, onFocus, onPointerDown: () => (wanted.current = undefined) };
}

const numeric = (kind: SiteField["kind"]): boolean => kind === "number";

function Cell({ site: s, column, kind, showTenant, tab }: { site: SiteRow; column: string; kind: SiteField["kind"]; showTenant: boolean; tab: boolean }) {
  const v = s[column];
  if (column === "name") {
    return (
      <div role="rowheader" className="inv-name truncate">
        <Shape colour={s["colour"] as Colour} size={12} label />
        <Link href={sitePath(s)} className="truncate" title={s.name} tabIndex={tab ? 0 : -1}>
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

interface GroupProps {
  group: SiteGroup;
  index: number;
  style: { transform: string };
  columns: number;
  open: boolean;
  onOpen: (value: string | undefined) => void;
  tab: boolean;
}

function GroupRow({ group: g, index, style, columns, open, onOpen, tab }: GroupProps) {
  return (
    <div role="row" aria-rowindex={index + 2} className="inv-row inv-group" style={style}>
      <div role="cell" aria-colspan={columns}>
        <button type="button" tabIndex={tab ? 0 : -1} aria-expanded={open} data-group={g.value} onClick={() => onOpen(open ? undefined : g.value)}>
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
