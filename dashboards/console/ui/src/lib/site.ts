import type { Site, SiteChange, VirtualSite } from "../api/types";
import { colourRank } from "./colour";
import { DASH, formatPercent } from "./format";

export interface SiteRef {
  tenant: string;
  name: string;
}

/** A site's name is unique within its tenant only. */
export const siteKey = (s: SiteRef): string => `${s.tenant}/${s.name}`;

export const sitePath = (s: SiteRef): string => `/sites/${encodeURIComponent(s.name)}?tenant=${encodeURIComponent(s.tenant)}`;

/** The page with the arithmetic of its score. */
export const scorePath = (s: SiteRef): string => `/sites/${encodeURIComponent(s.name)}/score?tenant=${encodeURIComponent(s.tenant)}`;

/** As scorePath, of what the policy in shadow makes of it. */
export const shadowPath = (s: SiteRef): string => `${scorePath(s)}&shadow=true`;

/** The page with what it takes of the regionals. */
export const costPath = (s: SiteRef): string => `/sites/${encodeURIComponent(s.name)}/cost?tenant=${encodeURIComponent(s.tenant)}`;

/** A virtual site as users name it: namespace/name. */
export const virtualSiteRef = (v: Pick<VirtualSite, "namespace" | "name">): string => `${v.namespace}/${v.name}`;

export const virtualSiteKey = (v: Pick<VirtualSite, "tenant" | "namespace" | "name">): string => `${v.tenant}/${virtualSiteRef(v)}`;

export const virtualSitePath = (v: Pick<VirtualSite, "tenant" | "namespace" | "name">): string =>
  `/virtual-sites/${encodeURIComponent(v.namespace)}/${encodeURIComponent(v.name)}?tenant=${encodeURIComponent(v.tenant)}`;

/** Worst first: by colour, then by score, then by name, so that equal ones never jump about. */
export function compareWorst(a: Site, b: Site): number {
  return (
    colourRank(a.colour) - colourRank(b.colour) ||
    (a.score ?? 101) - (b.score ?? 101) ||
    (a.name < b.name ? -1 : a.name > b.name ? 1 : a.tenant < b.tenant ? -1 : a.tenant > b.tenant ? 1 : 0)
  );
}

/** Whether the place is a position that can be drawn. */
export function hasPlace(s: Site): boolean {
  const p = s.place;
  return !!p && Number.isFinite(p.latitude) && Number.isFinite(p.longitude) && Math.abs(p.latitude) <= 90 && Math.abs(p.longitude) <= 180;
}

/** The one line that says why a site turned: the first reason, else the phase that explains the lack of one. */
export const headline = (s: SiteChange): string => s.text || withoutReason(s.phase ?? "", s.colour ?? "");

/** What is said of a site for which there is no reason. */
export function withoutReason(phase: string, colour: string): string {
  if (phase === "Pending") return "waiting for approval";
  if (phase === "Approved") return "approved, has not connected yet";
  if (phase === "Decommissioned") return "decommissioned";
  if (colour === "grey") return "not enough is known for a score";
  return "no points lost";
}

/** Share of degraded and failing sites; a dash where no site counts. */
export function formatUnhealthy(v: VirtualSite): string {
  const counted = v.counts.green + v.counts.orange + v.counts.red + v.counts.grey;
  return v.percentUnhealthy === null || counted === 0 ? DASH : formatPercent(v.percentUnhealthy);
}

/** The chart of a signal at a site. */
export const signalPath = (s: SiteRef, signal: string, range = ""): string =>
  `/sites/${encodeURIComponent(s.name)}/signals/${encodeURIComponent(signal)}?${new URLSearchParams({ tenant: s.tenant, ...(range ? { range } : {}) }).toString()}`;
