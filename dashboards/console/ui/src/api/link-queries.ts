import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { quoteValue } from "../lib/inventory";
import type { SiteRef } from "../lib/site";
import { api, isTransient } from "./client";
import { keys } from "./keys";
import type { LinkPage } from "./types";

const REFRESH_MS = 15_000;
const patient = (count: number, e: Error) => isTransient(e) && count < 1;
const path = "/api/v1/links";

export interface LinksOf {
  q: string;
  tenant: string;
  sort: string;
  by: string;
}

/** The links of a query's sites, some at a time; each page has the summaries of all of them. */
export function useLinks(of: LinksOf) {
  return useInfiniteQuery({
    queryKey: keys.links(JSON.stringify(of)),
    queryFn: ({ signal, pageParam }) => api<LinkPage>("GET", path, { params: { ...of, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: LinkPage) => p.nextCursor || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= 2 ? REFRESH_MS : false),
    retry: patient,
  });
}

/** The link of one site; without a tenant those of all sites of that name. */
export function useLink(s: SiteRef) {
  const params = { q: `name=${quoteValue(s.name)}`, tenant: s.tenant, limit: 10 };
  return useQuery({
    queryKey: keys.links(JSON.stringify(params)),
    queryFn: ({ signal }) => api<LinkPage>("GET", path, { params, signal }),
    refetchInterval: REFRESH_MS,
    retry: patient,
  });
}
