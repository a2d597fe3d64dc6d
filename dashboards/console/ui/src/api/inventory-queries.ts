import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { both, patterns, type View } from "../lib/inventory";
import { type SiteRef, siteKey } from "../lib/site";
import { api, isTransient, Problem, withParams } from "./client";
import { keys } from "./keys";
import type { SiteFields, SitePage, SitesChanged } from "./types";

const PAGE = 200;
/** How many sites one answer of the API has at most. */
const MOST = 10_000;
const REFRESH_MS = 15_000;
/** Pages that are loaded anew by themselves; who has scrolled further sees the age of the list. */
const REFRESHED = 3;

const path = "/api/v1/sites";

/** The columns that rows always have, for the drawing and for what can be done to them. */
const NEEDED = ["colour", "phase", "maintenance"];

const columnsOf = (v: View): string => [...new Set([...v.columns, ...NEEDED])].join(",");

const patient = (count: number, e: Error) => isTransient(e) && count < 1;

/** The counts of a view, and its groups if it has any. */
export function useInventoryCounts(v: Pick<View, "q" | "group" | "tenant">) {
  const params = { q: v.q, group: v.group, tenant: v.tenant, limit: 0 };
  return useQuery({
    queryKey: keys.inventory(JSON.stringify(params)),
    queryFn: ({ signal }) => api<SitePage>("GET", path, { params, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
    retry: patient,
  });
}

const ALL = { q: "", group: "", tenant: "" };

/** Sites in figures: all that the user may read. */
export const useFleetCounts = () => useInventoryCounts(ALL);

/** A site that moved while pages were turned is listed where it came first. */
export function once<P extends Pick<SitePage, "sites">, D extends { pages: P[] }>(data: D): D {
  const seen = new Set<string>();
  const pages = data.pages.map((p) => {
    const sites = p.sites.filter((s) => seen.size < seen.add(siteKey(s)).size);
    return sites.length === p.sites.length ? p : { ...p, sites };
  });
  return pages.every((p, i) => p === data.pages[i]) ? data : { ...data, pages };
}

/** The rows of a view, or with a term only those of one of its groups. */
export function useInventoryRows(v: View, term: string, enabled: boolean) {
  const params = { q: term ? both(v.q, term) : v.q, sort: v.sort, columns: columnsOf(v), tenant: v.tenant };
  return useInfiniteQuery({
    queryKey: keys.inventory(JSON.stringify(params)),
    enabled,
    queryFn: ({ signal, pageParam }) => api<SitePage>("GET", path, { params: { ...params, limit: PAGE, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: SitePage) => p.nextCursor || undefined,
    select: once,
    placeholderData: keepPreviousData,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= REFRESHED ? REFRESH_MS : false),
    retry: patient,
  });
}

export function useSiteFields(tenant: string) {
  return useQuery({
    queryKey: keys.siteFields(tenant),
    queryFn: ({ signal }) => api<SiteFields>("GET", "/api/v1/site-fields", { params: { tenant }, signal }),
    staleTime: 60_000,
  });
}

/** Where the view can be downloaded. */
export const downloadHref = (v: View, format: "csv" | "json"): string =>
  withParams(path, { q: v.q, sort: v.sort, columns: v.columns.join(","), tenant: v.tenant, format, limit: format === "json" ? MOST : undefined });

/** All sites that a query means, by name. */
export async function allSites(v: View): Promise<SiteRef[]> {
  const out: SiteRef[] = [];
  for (let cursor = ""; ; ) {
    const p = await api<SitePage>("GET", path, { params: { q: v.q, tenant: v.tenant, columns: "name", limit: MOST, cursor } });
    for (const s of p.sites) out.push({ tenant: s.tenant, name: s.name });
    if (!p.nextCursor) return out;
    cursor = p.nextCursor;
  }
}

export type Change = { labels: Record<string, string | null> } | { maintenance: { reason: string; until?: string } } | { endMaintenance: true } | { approve: true };

export interface Failure extends SiteRef {
  detail: string;
}

export interface Outcome {
  changed: number;
  failed: Failure[];
}

/** Sites of one request: few enough that the progress is seen. */
const CHUNK = 100;

/** Does one thing to many sites, some at a time. What went wrong with a request is what went wrong with its sites. */
export function useChangeSites(onProgress: (done: number) => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ sites, change }: { sites: readonly SiteRef[]; change: Change }): Promise<Outcome> => {
      const out: Outcome = { changed: 0, failed: [] };
      for (let i = 0; i < sites.length; i += CHUNK) {
        const some = sites.slice(i, i + CHUNK);
        try {
          const r = await api<SitesChanged>("POST", "/api/v1/sites:change", { body: { sites: some, ...change } });
          out.changed += r.changed;
          out.failed.push(...r.failed);
        } catch (e) {
          // A bad request is bad for all of them, and nothing was done.
          if (i === 0 && e instanceof Problem && e.status === 400) throw e;
          out.failed.push(...failing(some, e));
        }
        onProgress(Math.min(sites.length, i + CHUNK));
      }
      return out;
    },
    onSettled: () => Promise.all([client.invalidateQueries({ queryKey: keys.inventoryAll }), client.invalidateQueries({ queryKey: keys.registrations })]), // an approved one waits no longer
  });
}

const failing = (sites: readonly SiteRef[], e: unknown): Failure[] => sites.map((s) => ({ ...s, detail: e instanceof Problem ? e.detail || e.title : String(e) }));

/** Silences all alerts of many sites: a silence a tenant, and for as many names as a matcher holds. */
export function useSilenceSites(onProgress: (done: number) => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ sites, duration, comment }: { sites: readonly SiteRef[]; duration: string; comment: string }): Promise<Outcome> => {
      const out: Outcome = { changed: 0, failed: [] };
      let done = 0;
      for (const tenant of new Set(sites.map((s) => s.tenant))) {
        for (const value of patterns(sites.filter((s) => s.tenant === tenant).map((s) => s.name))) {
          const some = value.split("|").map((name) => ({ tenant, name }));
          try {
            await api<unknown>("POST", "/api/v1/silences", { params: { tenant }, body: { matchers: [{ name: "site", value, isRegex: some.length > 1, isEqual: true }], duration, comment } });
            out.changed += some.length;
          } catch (e) {
            out.failed.push(...failing(some, e));
          }
          onProgress((done += some.length));
        }
      }
      return out;
    },
    onSettled: () => Promise.all([client.invalidateQueries({ queryKey: keys.alerting }), client.invalidateQueries({ queryKey: keys.inventoryAll })]),
  });
}
