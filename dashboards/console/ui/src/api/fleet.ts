// The fleet as the page holds it: every site the user may read, by key. Events of
// the stream are merged into it; nothing here does I/O.

import { siteKey, type SiteRef, virtualSiteKey } from "../lib/site";
import { parseTime } from "../lib/time";
import type { Colour, Site, Time, VirtualSite } from "./types";

export interface Fleet {
  /** The newest evaluation that is in here; null before the first. */
  asOf: Time | null;
  sites: ReadonlyMap<string, Site>;
}

export type FleetEvent =
  | { type: "sites"; asOf: Time | null; sites: Site[] }
  | { type: "removed"; asOf: Time | null; sites: SiteRef[] };

/** A site changed its colour while somebody was watching. */
export interface Change {
  id: number;
  site: SiteRef;
  from: Colour;
  to: Colour;
  at: number; // ms since 1970
  text: string;
}

export const fleetOf = (asOf: Time | null, sites: Iterable<Site>): Fleet => ({
  asOf,
  sites: new Map([...sites].map((s) => [siteKey(s), s])),
});

const ms = (t: Time | null): number => parseTime(t) ?? 0;

/**
 * Returns the fleet with the event merged in; the same object when nothing changed.
 * An event older than the fleet was overtaken by a list, and changes nothing.
 */
export function applyEvent(fleet: Fleet, e: FleetEvent): Fleet {
  if (e.asOf && ms(e.asOf) < ms(fleet.asOf)) return fleet;
  const asOf = ms(e.asOf) > ms(fleet.asOf) ? e.asOf : fleet.asOf;
  if (e.sites.length === 0) return asOf === fleet.asOf ? fleet : { ...fleet, asOf };
  const sites = new Map(fleet.sites);
  if (e.type === "removed") for (const s of e.sites) sites.delete(siteKey(s));
  else for (const s of e.sites) sites.set(siteKey(s), s);
  return { asOf, sites };
}

/**
 * A list takes several requests; what the stream says meanwhile would be lost under
 * it. So events are kept while a list is being read, and those that are no older
 * than the list's first page are merged into it. Events carry whole sites: to merge
 * one twice does no harm.
 */
export class EventBuffer {
  private readers = 0;
  private events: FleetEvent[] = [];

  add(e: FleetEvent): void {
    if (this.readers > 0) this.events.push(e);
  }

  async reading(list: () => Promise<Fleet>): Promise<Fleet> {
    if (this.readers++ === 0) this.events = [];
    try {
      let fleet = await list();
      for (const e of this.events) fleet = applyEvent(fleet, e);
      return fleet;
    } finally {
      this.readers--;
    }
  }
}

let changeId = 0;

/** The changes of colour between two states of the fleet. */
export function changesBetween(before: Fleet, after: Fleet, at: number, text: (s: Site) => string): Change[] {
  if (before.sites === after.sites) return [];
  const out: Change[] = [];
  for (const [key, s] of after.sites) {
    const old = before.sites.get(key);
    if (old && old !== s && old.colour !== s.colour) {
      out.push({ id: ++changeId, site: { tenant: s.tenant, name: s.name }, from: old.colour, to: s.colour, at, text: text(s) });
    }
  }
  return out;
}

export type VirtualSites = ReadonlyMap<string, VirtualSite>;

export function mergeVirtualSites(have: VirtualSites, changed: readonly VirtualSite[]): VirtualSites {
  const out = new Map(have);
  for (const v of changed) out.set(virtualSiteKey(v), v);
  return out;
}
