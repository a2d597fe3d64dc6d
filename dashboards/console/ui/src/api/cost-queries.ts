import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import type { SiteRef } from "../lib/site";
import { api } from "./client";
import { keys } from "./keys";
import type { CostBy, CostNames, CostPage, CostSort } from "./types";

const PAGE = 50;
/** Rates are means over minutes: more often shows nothing new. */
const REFRESH_MS = 30_000;

export interface CostFilter {
  by: CostBy;
  sort: CostSort;
  tenant: string;
  virtualSite: string;
  q: string;
}

export function useCost(f: CostFilter) {
  const params = { by: f.by, sort: f.sort, tenant: f.tenant, virtualSite: f.by === "site" ? f.virtualSite : "", q: f.q.trim() };
  return useInfiniteQuery({
    queryKey: keys.cost(JSON.stringify(params)),
    queryFn: ({ signal, pageParam }) => api<CostPage>("GET", "/api/v1/cost", { params: { ...params, limit: PAGE, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: CostPage) => p.nextCursor || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
}

/** What one site takes. */
export function useSiteCost(ref: SiteRef) {
  return useQuery({
    queryKey: keys.cost(`${ref.tenant}/${ref.name}`),
    enabled: ref.tenant !== "",
    queryFn: async ({ signal }) => {
      const page = await api<CostPage>("GET", "/api/v1/cost", { params: { tenant: ref.tenant, q: ref.name, limit: 1000 }, signal });
      return { page, row: page.rows.find((r) => r.name === ref.name) };
    },
    refetchInterval: REFRESH_MS,
  });
}

/** The metrics with the most series of a site. tenant may be "" when the name is unique. */
export function useCostNames(ref: SiteRef) {
  return useQuery({
    queryKey: keys.costNames(`${ref.tenant}/${ref.name}`),
    queryFn: ({ signal }) => api<CostNames>("GET", "/api/v1/cost/names", { params: { tenant: ref.tenant, site: ref.name }, signal }),
    refetchInterval: 2 * REFRESH_MS,
  });
}
