import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useRef } from "react";
import { Link } from "wouter";
import type { Site, Time } from "../api/types";
import { colourName } from "../lib/colour";
import { formatScore } from "../lib/format";
import { headline, lastSeen, siteKey, sitePath } from "../lib/site";
import { Shape } from "./shape";
import { Ago } from "./time";

const ROW = 56;

interface Props {
  sites: readonly Site[];
  label: string;
  /** The evaluation that the sites are from. */
  asOf: Time | null;
  lit?: string | null;
  onLit?: (key: string | null) => void;
  showTenant?: boolean;
}

/** Sites in the given order; only the rows in sight are in the page, so 10,000 are no burden. */
export function SiteList({ sites, label, asOf, lit, onLit, showTenant }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: sites.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 8,
    getItemKey: (i) => siteKey(sites[i]!),
  });
  const onKeyDown = (e: KeyboardEvent) => {
    const row = (e.target as Element).closest<HTMLElement>("[data-index]");
    if (!row) return;
    const at = Number(row.dataset.index);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: sites.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const target = Math.min(Math.max(to, 0), sites.length - 1);
    rows.scrollToIndex(target);
    const focus = (tries: number) => {
      const el = box.current?.querySelector<HTMLElement>(`[data-index="${target}"]`);
      if (el) el.focus({ preventScroll: true });
      else if (tries > 0) requestAnimationFrame(() => focus(tries - 1));
    };
    focus(10);
  };
  return (
    <div ref={box} className="site-list" role="list" aria-label={label} onKeyDown={onKeyDown} onPointerLeave={() => onLit?.(null)}>
      <div style={{ position: "relative", height: rows.getTotalSize() }} role="presentation">
        {rows.getVirtualItems().map((v) => {
          const s = sites[v.index]!;
          const key = siteKey(s);
          return (
            <div key={v.key} role="listitem" aria-setsize={sites.length} aria-posinset={v.index + 1}>
              <Link href={sitePath(s)} className={lit === key ? "site-row lit" : "site-row"} data-index={v.index} data-site={key}
                style={{ transform: `translateY(${v.start}px)` }} onPointerEnter={() => onLit?.(key)} onFocus={() => onLit?.(key)}>
                <Shape colour={s.colour} />
                <span className="visually-hidden">{colourName[s.colour]}</span>
                <span className="score">{formatScore(s.score)}</span>
                <span className="truncate">
                  <span className="name">{s.name}</span>{" "}
                  <span className="where">
                    {s.region}
                    {showTenant && ` · ${s.tenant}`}
                  </span>
                </span>
                <span className="seen">
                  {s.maintenance ? <span className="chip">maintenance</span> : <Ago time={lastSeen(s, asOf)} none={s.phase.toLowerCase()} />}
                </span>
                <span className="why truncate">{headline(s)}</span>
              </Link>
            </div>
          );
        })}
      </div>
    </div>
  );
}
