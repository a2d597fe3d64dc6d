import { type InfiniteData, keepPreviousData, type QueryKey, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import type { SiteRef } from "../lib/site";
import { api } from "./client";
import { keys } from "./keys";
import { PATIENCE, useLate } from "./late";
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
  const queryKey = keys.cost(JSON.stringify(params));
  const client = useQueryClient();
  const list = useInfiniteQuery({
    queryKey,
    queryFn: ({ signal, pageParam }) => {
      const again = client.getQueryData<InfiniteData<CostPage>>(queryKey)?.pageParams.includes(pageParam);
      return api<CostPage>("GET", "/api/v1/cost", { params: { ...params, limit: PAGE, cursor: pageParam, patience: again ? "" : PATIENCE }, signal });
    },
    initialPageParam: "",
    getNextPageParam: (p: CostPage) => p.nextCursor || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
  useLate(list, list.data?.pages ?? []);
  return list;
}

/** What stands on the page is replaced by all of it, not by a part. */
function usePatience(queryKey: QueryKey) {
  const client = useQueryClient();
  return () => (client.getQueryData(queryKey) === undefined ? PATIENCE : "");
}

/** What one site takes. */
export function useSiteCost(ref: SiteRef) {
  const queryKey = keys.cost(`${ref.tenant}/${ref.name}`);
  const patience = usePatience(queryKey);
  const cost = useQuery({
    queryKey,
    enabled: ref.tenant !== "",
    queryFn: async ({ signal }) => {
      const page = await api<CostPage>("GET", "/api/v1/cost", { params: { tenant: ref.tenant, q: ref.name, limit: 1000, patience: patience() }, signal });
      return { page, row: page.rows.find((r) => r.name === ref.name) };
    },
    refetchInterval: REFRESH_MS,
  });
  useLate(cost, cost.data ? [cost.data.page] : []);
  return cost;
}

/** The metrics with the most series of a site. tenant may be "" when the name is unique. */
export function useCostNames(ref: SiteRef) {
  const queryKey = keys.costNames(`${ref.tenant}/${ref.name}`);
  const patience = usePatience(queryKey);
  const names = useQuery({
    queryKey,
    queryFn: ({ signal }) => api<CostNames>("GET", "/api/v1/cost/names", { params: { tenant: ref.tenant, site: ref.name, patience: patience() }, signal }),
    refetchInterval: 2 * REFRESH_MS,
  });
  useLate(names, names.data ? [names.data] : []);
  return names;
}
