import type { Colour, Phase, Site } from "../api/types";
import { COLOURS } from "./colour";

/** What the fleet page shows; it lives in the URL, so that a view can be shared. */
export interface Filter {
  q: string;
  colours: ReadonlySet<Colour>;
  region: string;
  phase: string;
  virtualSite: string;
  tenant: string;
  maintenance: boolean;
}

export const PHASES: readonly Phase[] = ["Online", "Offline", "Approved", "Pending", "Decommissioned"];

export function parseFilter(search: string): Filter {
  const p = new URLSearchParams(search);
  const colours = (p.get("colour") ?? "").split(",").filter((c): c is Colour => (COLOURS as readonly string[]).includes(c));
  return {
    q: p.get("q") ?? "",
    colours: new Set(colours),
    region: p.get("region") ?? "",
    phase: p.get("phase") ?? "",
    virtualSite: p.get("virtualSite") ?? "",
    tenant: p.get("tenant") ?? "",
    maintenance: p.get("maintenance") === "1",
  };
}

export function formatFilter(f: Filter): string {
  const p = new URLSearchParams();
  if (f.q) p.set("q", f.q);
  if (f.colours.size > 0) p.set("colour", COLOURS.filter((c) => f.colours.has(c)).join(","));
  if (f.region) p.set("region", f.region);
  if (f.phase) p.set("phase", f.phase);
  if (f.virtualSite) p.set("virtualSite", f.virtualSite);
  if (f.tenant) p.set("tenant", f.tenant);
  if (f.maintenance) p.set("maintenance", "1");
  return p.toString();
}

export const isFiltered = (f: Filter): boolean => formatFilter(f) !== "";

/** Everything but the colours and maintenance, which the legend counts over. */
export function matchesBase(s: Site, f: Filter): boolean {
  return (
    (!f.region || s.region === f.region) &&
    (!f.phase || s.phase === f.phase) &&
    (!f.tenant || s.tenant === f.tenant) &&
    (!f.virtualSite || s.virtualSites.includes(f.virtualSite)) &&
    matchesText(s, f.q)
  );
}

export function matchesColour(s: Site, f: Filter): boolean {
  return (f.colours.size === 0 || f.colours.has(s.colour)) && (!f.maintenance || s.maintenance !== null);
}

/** Every word must occur in the name, region, tenant, address or the reasons. */
export function matchesText(s: Site, q: string): boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const text = [s.name, s.region, s.tenant, s.place?.address ?? "", ...s.virtualSites, ...s.reasons.map((r) => `${r.text} ${r.signal}`)]
    .join("\n")
    .toLowerCase();
  return words.every((w) => text.includes(w));
}

/** The distinct values of a field, sorted, for a filter's choices. */
export function choices(sites: Iterable<Site>, of: (s: Site) => string | readonly string[]): string[] {
  const set = new Set<string>();
  for (const s of sites) {
    const v = of(s);
    if (typeof v === "string") {
      if (v) set.add(v);
    } else for (const x of v) set.add(x);
  }
  return [...set].sort();
}
