import { useQuery } from "@tanstack/react-query";
import { lackOf, metricTenants, type Right } from "../lib/rights";
import { api } from "./client";
import { keys } from "./keys";
import type { Rights } from "./types";

/** What the user lacks to use a right in the tenants, in words; "" if nothing, or nobody knows yet: then the server says so when it is tried. */
export function useLack(need: Right, tenants: Iterable<string>): string {
  return lackOf(useRights(), need, tenants);
}

/** Tenants whose metrics the user may ask for. */
export const useMetricTenants = (tenants: readonly string[]): readonly string[] => metricTenants(useRights(), tenants);

const useRights = (): Rights | undefined => useQuery({ queryKey: keys.rights, queryFn: ({ signal }) => api<Rights>("GET", "/api/v1/rights", { signal }), staleTime: 30_000, retry: false }).data;
