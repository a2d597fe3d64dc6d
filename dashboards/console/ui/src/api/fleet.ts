// What the stream tells of sites. Nothing here does I/O.

import { siteKey, type SiteRef, virtualSiteKey } from "../lib/site";
import type { Colour, SiteChange, SiteMap, Time, VirtualSite } from "./types";

export type FleetEvent =
  | { type: "sites"; asOf: Time | null; sites: SiteChange[] }
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

let changeId = 0;

const LETTERS: Record<string, Colour> = { g: "green", o: "orange", r: "red", x: "grey" };

/** The colour of a letter in a SiteMap. */
export const colourOfLetter = (letter: string | undefined): Colour => LETTERS[letter ?? ""] ?? "grey";

/** The colours of sites as they were heard of last, of which the stream's are a change. */
export class Colours {
  private readonly of = new Map<string, Colour>();

  learn(m: SiteMap): void {
    m.names.forEach((name, i) => this.of.set(siteKey({ tenant: m.tenants[m.tenant[i]!]!, name }), colourOfLetter(m.colour[i])));
  }

  /** Takes what an event says; returns the changes of colour in it. */
  apply(e: FleetEvent, at: number, text: (s: SiteChange) => string): Change[] {
    if (e.type === "removed") {
      for (const s of e.sites) this.of.delete(siteKey(s));
      return [];
    }
    return e.sites.flatMap((s) => {
      const from = this.of.get(siteKey(s));
      if (s.colour === undefined) return []; // as it was
      this.of.set(siteKey(s), s.colour);
      return from && from !== s.colour ? { id: ++changeId, site: { tenant: s.tenant, name: s.name }, from, to: s.colour, at, text: text(s) } : [];
    });
  }
}

export type VirtualSites = ReadonlyMap<string, VirtualSite>;

export function mergeVirtualSites(have: VirtualSites, changed: readonly VirtualSite[]): VirtualSites {
  const out = new Map(have);
  for (const v of changed) out.set(virtualSiteKey(v), v);
  return out;
}
