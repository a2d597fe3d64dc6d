import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { quoteValue } from "../lib/inventory";
import { type SiteRef, withoutReason } from "../lib/site";
import { api, isTransient } from "./client";
import { keys } from "./keys";
import type { Colour, SiteDistributions, SiteMap, SitePage, SiteRow, Time } from "./types";

const REFRESH_MS = 15_000;
const patient = (count: number, e: Error) => isTransient(e) && count < 1;

/** What the map draws of the sites that a query means. */
export function useSiteMap(of: { q: string; tenant: string; by: string }, enabled = true) {
  const params = { q: of.q, tenant: of.tenant, by: of.by };
  return useQuery({
    queryKey: keys.siteMap(JSON.stringify(params)),
    enabled,
    queryFn: ({ signal }) => api<SiteMap>("GET", "/api/v1/site-map", { params, signal }),
    placeholderData: keepPreviousData,
    structuralSharing: false, // ten thousand values that hardly ever are the same
    refetchInterval: REFRESH_MS,
    retry: patient,
  });
}

/** A page of sites without more. */
export function useSiteRows(params: { q: string; tenant?: string; sort?: string; columns: string; limit: number }, enabled = true) {
  return useQuery({
    queryKey: keys.siteRows(JSON.stringify(params)),
    enabled,
    queryFn: ({ signal }) => api<SitePage>("GET", "/api/v1/sites", { params, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
    retry: patient,
  });
}

/** Sites whose names fit into one query. */
const NAMES = 25;

/** The colours and scores of a few sites of a tenant, by name. */
export function useSitesNamed(tenant: string, names: readonly string[]): ReadonlyMap<string, { colour: Colour; score: number | null }> {
  const chunks: string[][] = [];
  for (let i = 0; i < names.length; i += NAMES) chunks.push(names.slice(i, i + NAMES));
  return useQueries({
    queries: chunks.map((some) => {
      const params = { q: `name in (${some.map(quoteValue).join(", ")})`, tenant, columns: "colour,score", limit: NAMES };
      return {
        queryKey: keys.siteRows(JSON.stringify(params)),
        queryFn: ({ signal }: { signal: AbortSignal }) => api<SitePage>("GET", "/api/v1/sites", { params, signal }),
        refetchInterval: REFRESH_MS,
        retry: patient,
      };
    }),
    combine: (all) => new Map(all.flatMap((r) => (r.data?.sites ?? []).map((s) => [s.name, { colour: s.colour as Colour, score: s.score as number | null }] as const))),
  });
}

export interface Summary {
  headline: string;
  where: string;
  phase: string;
  lastSeen: Time | null;
}

const text = (v: SiteRow[string] | undefined): string => (typeof v === "string" ? v : "");

export const summaryOf = (r: SiteRow): Summary => ({
  headline: text(r.reason) || withoutReason(text(r.phase), text(r.colour)),
  where: [text(r.region), text(r.address)].filter(Boolean).join(" · "),
  phase: text(r.phase),
  lastSeen: text(r.lastSeen) || null,
});

/** What is said of a site that is pointed at. */
export function useSiteSummary(s: SiteRef | undefined): Summary | undefined {
  const { data } = useSiteRows({ q: `name=${quoteValue(s?.name ?? "")}`, tenant: s?.tenant ?? "", columns: "reason,region,address,phase,colour,lastSeen", limit: 1 }, s !== undefined);
  const row = data?.sites[0];
  return row && s && row.name === s.name && row.tenant === s.tenant ? summaryOf(row) : undefined;
}

/** How numbers spread over the sites of a query. */
export function useSiteDistributions(params: { q: string; tenant: string; of: string }) {
  return useQuery({
    queryKey: keys.siteDistributions(JSON.stringify(params)),
    queryFn: ({ signal }) => api<SiteDistributions>("GET", "/api/v1/site-distributions", { params, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
    retry: patient,
  });
}
