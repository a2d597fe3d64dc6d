import { queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { alignedWindow, linesOf, promString, type Range, type Sample } from "../lib/history";
import { underWay } from "../lib/reset";
import { siteKey, type SiteRef, virtualSiteKey } from "../lib/site";
import { useStore } from "../lib/store";
import { api, isTransient, Problem, serverNow } from "./client";
import type { VirtualSites } from "./fleet";
import { keys } from "./keys";
import { liveState } from "./live";
import type { Explanation, HealthPolicy, Maintenance, Matrix, Place, Registration, RegistrationList, Session, SiteDetail, SiteObject, Tenant, VirtualSite, VirtualSiteList } from "./types";

const PAGE = 1000;
/** Nothing that loops over pages goes on for ever, whatever a server says. */
const MAX_PAGES = 500;

export const retry = (count: number, e: unknown): boolean => isTransient(e) && count < 1;

async function allPages<P extends { nextCursor?: string | null }>(path: string, signal: AbortSignal, each: (p: P) => void): Promise<void> {
  let cursor: string | undefined;
  for (let i = 0; i < MAX_PAGES; i++) {
    const page = await api<P>("GET", path, { params: { limit: PAGE, cursor }, signal });
    each(page);
    if (!page.nextCursor || page.nextCursor === cursor) return;
    cursor = page.nextCursor;
  }
}

export const sessionQuery = queryOptions({
  queryKey: keys.session,
  queryFn: ({ signal }) => api<Session>("GET", "/api/v1/session", { signal }),
  staleTime: 5 * 60_000,
});

export function useVirtualSites() {
  const live = useStore(liveState).kind === "live";
  return useQuery({
    queryKey: keys.virtualSites,
    queryFn: async ({ signal }): Promise<VirtualSites> => {
      const all: VirtualSite[] = [];
      await allPages<VirtualSiteList>("/api/v1/health/virtualsites", signal, (p) => all.push(...p.virtualSites));
      return new Map(all.map((v) => [virtualSiteKey(v), v]));
    },
    // The stream tells of changes, not of virtual sites that were deleted.
    staleTime: 30_000,
    structuralSharing: false,
    refetchInterval: live ? 60_000 : 30_000,
  });
}

/** A site's health with every signal. tenant may be "" when the name is unique. */
export function useSiteHealth(ref: SiteRef) {
  return useQuery({
    queryKey: keys.siteHealth(siteKey(ref)),
    queryFn: async ({ client, signal }) => {
      const found = await api<SiteDetail>("GET", `/api/v1/health/sites/${encodeURIComponent(ref.name)}`, { params: { tenant: ref.tenant }, signal });
      if (!ref.tenant) client.setQueryData(keys.siteHealth(siteKey(found)), found); // asked for by its name alone, then by its tenant too
      return found;
    },
    refetchInterval: 15_000,
  });
}

/** The arithmetic of a site's score. */
export function useSiteExplanation(ref: SiteRef, shadow: boolean) {
  return useQuery({
    queryKey: keys.siteExplanation(siteKey(ref), shadow),
    queryFn: async ({ client, signal }) => {
      const found = await api<Explanation>("GET", `/api/v1/health/sites/${encodeURIComponent(ref.name)}/explain`, { params: { tenant: ref.tenant, shadow: shadow ? "true" : undefined }, signal });
      if (!ref.tenant) client.setQueryData(keys.siteExplanation(siteKey({ tenant: found.tenant, name: found.site }), shadow), found);
      return found;
    },
    refetchInterval: 15_000,
  });
}

export function useSiteObject(ref: SiteRef) {
  return useQuery({
    queryKey: keys.siteObject(siteKey(ref)),
    queryFn: ({ signal }) => api<SiteObject>("GET", `/api/v1/sites/${encodeURIComponent(ref.name)}`, { params: { tenant: ref.tenant }, signal }),
    refetchInterval: ({ state }) => (state.data?.reset && underWay(state.data.reset) ? 3_000 : 30_000),
  });
}

export interface History {
  start: number;
  end: number;
  score: readonly Sample[];
  dimensions: ReadonlyMap<string, readonly Sample[]>;
}

export const scoreQuery = (site: string): string => `max(muster_site_health_score{site=${promString(site)}})`;
export const dimensionsQuery = (site: string): string => `max by (dimension) (muster_site_health_dimension_score{site=${promString(site)}})`;

export function useSiteHistory(ref: SiteRef, range: Range, enabled: boolean) {
  return useQuery({
    queryKey: keys.siteHistory(siteKey(ref), range.id),
    enabled,
    queryFn: async ({ signal }): Promise<History> => {
      const { start, end } = alignedWindow(serverNow() / 1000, range);
      const ask = async (query: string) => {
        const m = await api<Matrix>("GET", "/api/v1/metrics/query_range", {
          params: { query, start, end, step: range.step, tenant: ref.tenant },
          signal,
        });
        if (m.status === "error") throw new Problem(502, { title: "The query failed", detail: m.error ?? "" });
        return m;
      };
      const [score, dims] = await Promise.all([ask(scoreQuery(ref.name)), ask(dimensionsQuery(ref.name))]);
      return {
        start,
        end,
        score: linesOf(score, "", start, end, range.step).get("") ?? [],
        dimensions: linesOf(dims, "dimension", start, end, range.step),
      };
    },
    staleTime: 10_000,
    refetchInterval: Math.max(15, range.step) * 1000,
    placeholderData: (previous, query) => (query?.queryKey[1] === siteKey(ref) ? previous : undefined),
  });
}

export function useRegistrations() {
  return useQuery({
    queryKey: keys.registrations,
    queryFn: async ({ signal }) => {
      const all: Registration[] = [];
      await allPages<RegistrationList>("/api/v1/registrations", signal, (p) => all.push(...p.registrations));
      return all;
    },
    refetchInterval: 10_000,
    refetchOnWindowFocus: true,
  });
}

/** Use against quota moves slowly: the control plane notes a twentieth of a quota at a time. */
export function useTenants() {
  return useQuery({
    queryKey: keys.tenants,
    queryFn: async ({ signal }) => (await api<{ tenants: Tenant[] }>("GET", "/api/v1/tenants", { signal })).tenants,
    refetchInterval: 60_000,
  });
}

export function usePolicies() {
  return useQuery({
    queryKey: keys.policies,
    queryFn: ({ signal }) => api<{ policies: HealthPolicy[] }>("GET", "/api/v1/health/policies", { signal }).then((r) => r.policies),
    refetchInterval: 15_000,
  });
}

export interface Approval {
  site: Registration;
  labels: Record<string, string>;
  place: Place | null;
}

export function useApprove() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ site, labels, place }: Approval) =>
      api<SiteObject>("POST", `/api/v1/registrations/${encodeURIComponent(site.name)}/approve`, {
        params: { tenant: site.tenant },
        body: {
          ...(Object.keys(labels).length > 0 ? { labels } : {}),
          ...(place ? { place } : {}),
          // Approve the machine that was looked at, not one that took its name since.
          ...(site.publicKey ? { publicKey: site.publicKey } : {}),
        },
      }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.registrations }),
  });
}

export function useReject() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (site: Registration) =>
      api<void>("POST", `/api/v1/registrations/${encodeURIComponent(site.name)}/reject`, { params: { tenant: site.tenant } }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.registrations }),
  });
}

export interface ResetRequest {
  wait: string;
  discardSpool: boolean;
  approveAgain: boolean;
}

export const useReset = (ref: SiteRef) => useSetting<ResetRequest>(ref, "POST", "reset");
export const useMaintenance = (ref: SiteRef) => useSetting<Maintenance>(ref, "PUT", "maintenance");

/** What is asked of a site until it is taken back; null takes it back. */
function useSetting<T>(ref: SiteRef, method: "PUT" | "POST", what: string) {
  const client = useQueryClient();
  const path = `/api/v1/sites/${encodeURIComponent(ref.name)}/${what}`;
  return useMutation({
    mutationFn: (v: T | null) =>
      v === null ? api<unknown>("DELETE", path, { params: { tenant: ref.tenant } }) : api<unknown>(method, path, { params: { tenant: ref.tenant }, body: v }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.siteKey(siteKey(ref)) }),
  });
}
