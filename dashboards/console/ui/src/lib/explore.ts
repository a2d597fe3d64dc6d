// What the page of metrics shows; it lives in the URL.

import { type Range, RANGES, rangeOf } from "./history";

export interface Explore {
  tenant: string;
  query: string;
  range: string;
  /** When the range ends, in seconds since 1970; 0: now. */
  end: number;
}

export function parseExplore(search: string): Explore & { span: Range } {
  const p = new URLSearchParams(search);
  const span = rangeOf(p.get("range") ?? "1h", RANGES);
  const end = Number(p.get("end") ?? 0);
  return { tenant: p.get("tenant") ?? "", query: p.get("query") ?? "", range: span.id, end: Number.isFinite(end) && end > 0 ? end : 0, span };
}

export function exploreHref(e: Partial<Explore>): string {
  const p = new URLSearchParams();
  if (e.tenant) p.set("tenant", e.tenant);
  if (e.query) p.set("query", e.query);
  if (e.range && e.range !== "1h") p.set("range", e.range);
  if (e.end) p.set("end", String(e.end));
  const s = p.toString();
  return s ? `/explore?${s}` : "/explore";
}
