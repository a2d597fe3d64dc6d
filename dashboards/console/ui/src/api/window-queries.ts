import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { siteKey, type SiteRef, virtualSiteKey } from "../lib/site";
import { api } from "./client";
import { keys } from "./keys";
import type { VirtualSiteMaintenance } from "./types";

export interface VirtualSiteRef {
  tenant: string;
  namespace: string;
  name: string;
}

/** Once at start, or again and again by schedule. */
export interface WindowRequest {
  reason: string;
  start?: string;
  schedule?: string;
  timeZone?: string;
  duration: string;
}

/** Whose windows they are. */
export type WindowOwner = { site: SiteRef } | { virtualSite: VirtualSiteRef };

const pathOf = (o: WindowOwner): string =>
  "site" in o
    ? `/api/v1/sites/${encodeURIComponent(o.site.name)}/maintenance/windows`
    : `/api/v1/virtualsites/${encodeURIComponent(o.virtualSite.namespace)}/${encodeURIComponent(o.virtualSite.name)}/maintenance/windows`;

const tenantOf = (o: WindowOwner): string => ("site" in o ? o.site.tenant : o.virtualSite.tenant);

const keyOf = (o: WindowOwner) => ("site" in o ? keys.siteKey(siteKey(o.site)) : keys.virtualSiteWindows(virtualSiteKey(o.virtualSite)));

export function useVirtualSiteWindows(v: VirtualSiteRef) {
  return useQuery({
    queryKey: keys.virtualSiteWindows(virtualSiteKey(v)),
    queryFn: ({ signal }) => api<VirtualSiteMaintenance>("GET", pathOf({ virtualSite: v }), { params: { tenant: v.tenant }, signal }).then((r) => r.maintenanceWindows),
    refetchInterval: 30_000,
  });
}

export function usePlanWindow(o: WindowOwner) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ name, request }: { name: string; request: WindowRequest }) =>
      api<unknown>("PUT", `${pathOf(o)}/${encodeURIComponent(name)}`, { params: { tenant: tenantOf(o) }, body: request }),
    onSettled: () => client.invalidateQueries({ queryKey: keyOf(o) }),
  });
}

export function useDropWindow(o: WindowOwner) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (name: string) => api<void>("DELETE", `${pathOf(o)}/${encodeURIComponent(name)}`, { params: { tenant: tenantOf(o) } }),
    onSettled: () => client.invalidateQueries({ queryKey: keyOf(o) }),
  });
}
