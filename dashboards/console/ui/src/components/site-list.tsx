import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useRef } from "react";
import { Link } from "wouter";
import { summaryOf } from "../api/map-queries";
import type { Colour, SiteRow } from "../api/types";
import { colourName } from "../lib/colour";
import { formatScore } from "../lib/format";
import { siteKey, sitePath } from "../lib/site";
import { Shape } from "./shape";
import { Ago } from "./time";

const ROW = 56;

/** Columns that the list shows. */
export const LIST_COLUMNS: readonly string[] = ["name", "colour", "score", "region", "address", "phase", "lastSeen", "maintenance", "reason"];

interface Props {
  rows: readonly SiteRow[];
  /** Of all pages. */
  total: number;
  label: string;
  lit?: string | null;
  onLit?: (key: string | null) => void;
  showTenant?: boolean;
  /** The last row in sight: more are loaded when it comes near the end. */
  onReach: (row: number) => void;
}

/** Sites in the given order; only the rows in sight are in the page, so 10,000 are no burden. */
export function SiteList({ rows: sites, total, label, lit, onLit, showTenant, onReach }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: total, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 8 });
  const last = rows.getVirtualItems().at(-1)?.index ?? -1;
  useEffect(() => {
    if (last >= 0) onReach(last);
  }, [last, onReach]);
  const onKeyDown = (e: KeyboardEvent) => {
    const row = (e.target as Element).closest<HTMLElement>("[data-index]");
    if (!row) return;
    const at = Number(row.dataset.index);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: total - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const target = Math.min(Math.max(to, 0), total - 1);
    rows.scrollToIndex(target);
    const focus = (tries: number) => {
      const el = box.current?.querySelector<HTMLElement>(`[data-index="${target}"]`);
      if (el) el.focus({ preventScroll: true });
      else if (tries > 0) requestAnimationFrame(() => focus(tries - 1));
    };
    focus(60);
  };
  return (
    <div ref={box} className="site-list" role="list" aria-label={label} onKeyDown={onKeyDown} onPointerLeave={() => onLit?.(null)}>
      <div style={{ position: "relative", height: rows.getTotalSize() }} role="presentation">
        {rows.getVirtualItems().map((v) => {
          const s = sites[v.index];
          if (!s) {
            return (
              <div key={v.key} role="listitem" aria-setsize={total} aria-posinset={v.index + 1}>
                <div className="site-row muted small" style={{ transform: `translateY(${v.start}px)` }}>
                  Loading…
                </div>
              </div>
            );
          }
          const key = siteKey(s);
          const colour = s.colour as Colour;
          const { headline, phase, lastSeen } = summaryOf(s);
          return (
            <div key={v.key} role="listitem" aria-setsize={total} aria-posinset={v.index + 1}>
              <Link href={sitePath(s)} className={lit === key ? "site-row lit" : "site-row"} data-index={v.index} data-site={key}
                style={{ transform: `translateY(${v.start}px)` }} onPointerEnter={() => onLit?.(key)} onFocus={() => onLit?.(key)}>
                <Shape colour={colour} />
                <span className="visually-hidden">{colourName[colour]}</span>
                <span className="score">{formatScore(s.score as number | null)}</span>
                <span className="truncate">
                  <span className="name">{s.name}</span>{" "}
                  <span className="where">
                    {s.region}
                    {showTenant && ` · ${s.tenant}`}
                  </span>
                </span>
                <span className="seen">{s.maintenance ? <span className="chip">maintenance</span> : <Ago time={lastSeen} none={phase.toLowerCase()} />}</span>
                <span className="why truncate">{headline}</span>
              </Link>
            </div>
          );
        })}
      </div>
    </div>
  );
}
