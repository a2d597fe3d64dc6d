import { useQuery } from "@tanstack/react-query";
import { triesBy, type Tries, valuesBy } from "../lib/hosts";
import { quoteValue } from "../lib/inventory";
import { api } from "./client";
import { keys } from "./keys";
import { useInstant } from "./metric-queries";
import type { SitePage, VirtualHost } from "./types";

const REFRESH_MS = 15_000;

/** The virtual hosts that the user may read, of one tenant or, with "", of all. */
export function useVirtualHosts(tenant: string) {
  return useQuery({
    queryKey: keys.virtualHosts(tenant),
    queryFn: ({ signal }) => api<{ virtualHosts: VirtualHost[] }>("GET", "/api/v1/virtualhosts", { params: { tenant }, signal }).then((r) => r.virtualHosts),
    refetchInterval: REFRESH_MS,
  });
}

/** An expression over what sites measure of their hosts, now and again. */
export const useMeasured = (tenant: string, query: string) => useInstant(tenant, query, undefined, REFRESH_MS);

/** As useMeasured, its values by some of their labels, joined by spaces. */
export const useMeasuredBy = (tenant: string, query: string, ...labels: readonly string[]): Map<string, number> => valuesBy(useMeasured(tenant, query).data, ...labels);

/** How attempts went, by labels, joined by spaces. */
export const useTries = (tenant: string, ask: { tried: string; failed: string }, ...labels: readonly string[]): ((key: string) => Tries | undefined) =>
  triesBy(useMeasured(tenant, ask.tried).data, useMeasured(tenant, ask.failed).data, ...labels);

/** How long a list of names in a query of the inventory may be, which has 2,000 bytes at most. */
const NAMES = 1900;

/** Which regional each of these sites is connected to, by name; as many of them as one query takes. */
export function useRegionalsOf(tenant: string, names: readonly string[]) {
  let list = "";
  for (const n of names.map(quoteValue)) if (list.length + n.length < NAMES) list += list ? `, ${n}` : n;
  const params = { tenant, q: `name in (${list})`, columns: "regional", limit: names.length };
  return useQuery({
    queryKey: keys.inventory(JSON.stringify(params)),
    enabled: names.length > 0,
    queryFn: ({ signal }) => api<SitePage>("GET", "/api/v1/sites", { params, signal }).then((p) => new Map(p.sites.map((s) => [s.name, String(s.regional ?? "")]))),
    refetchInterval: REFRESH_MS,
    retry: false,
  });
}
