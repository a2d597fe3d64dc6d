// From the answer of the API to what the map draws.

import { colourOfLetter } from "../api/fleet";
import type { SiteMap } from "../api/types";
import { columnTitle } from "../lib/inventory";
import { siteKey } from "../lib/site";
import type { Spot } from "./markers";
import { HEALTH, ofNumber, ofTexts, type Paint } from "./paint";

/** What another part of the page knows of sites, to colour them by: a text a site, by its key. */
export interface Overlay {
  of: string;
  texts: readonly string[];
  at: ReadonlyMap<string, number>;
}

/** Percent, or nothing: the unit of a column. */
const unitOf = (column: string): string => (/Used$/.test(column) ? " %" : "");

/** Of 0 to 100, however large the values of these sites are. */
const isShare = (column: string): boolean => /Used$|^(score|connectivity|reliability|security|performance)$/.test(column);

export function spotsOf(m: SiteMap | undefined, overlay?: Overlay): { spots: Spot[]; paint: Paint } {
  if (!m) return { spots: [], paint: HEALTH };
  let paint = HEALTH;
  let kind: ((i: number, key: string) => number) | undefined;
  if (overlay) {
    const t = ofTexts(overlay.of, overlay.texts);
    paint = t.paint;
    kind = (_, key) => t.kind(overlay.at.get(key) ?? -1);
  } else if (m.by !== "" && m.values) {
    const { values } = m;
    const n = ofNumber(columnTitle(m.by), unitOf(m.by), values, isShare(m.by));
    paint = n.paint;
    kind = (i) => n.kind(values[i] ?? null);
  } else if (m.by !== "") {
    const t = ofTexts(columnTitle(m.by), m.categories ?? []);
    paint = t.paint;
    kind = (i) => t.kind(m.category?.[i] ?? -1);
  }
  const maintained = new Set(m.inMaintenance);
  const spots = m.names.map((name, i): Spot => {
    const ref = { tenant: m.tenants[m.tenant[i]!]!, name };
    return {
      ...ref, colour: colourOfLetter(m.colour[i]), score: m.score[i] ?? null, maintenance: maintained.has(i) ? true : null,
      place: { latitude: m.latitude[i]!, longitude: m.longitude[i]! }, ...(kind ? { kind: kind(i, siteKey(ref)) } : {}),
    };
  });
  return { spots, paint };
}
