import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { AlertFilter } from "../lib/alert-filter";
import { api, isTransient } from "./client";
import { keys } from "./keys";
import type { Alert, AlertDetail, AlertGroupList, AlertList, AlertState, LoudnessList, SeverityCounts, Silence, SilenceRequest, SilenceState } from "./types";

const PAGE = 100;
const REFRESH_MS = 10_000;
/** Pages of 1,000 alerts that a silence is tried on; more can't be of use to anybody. */
const TRIED_PAGES = 5;

export interface AlertScope {
  tenant?: string;
  virtualSite?: string;
  site?: string;
}

/** What fires, in figures. It is asked on every page: a failing role must not be asked harder. */
export function useAlertState(scope: AlertScope = {}) {
  const params = { tenant: scope.tenant, virtualSite: scope.virtualSite, site: scope.site };
  return useQuery({
    queryKey: keys.alertState(JSON.stringify(params)),
    queryFn: ({ signal }) => api<AlertState>("GET", "/api/v1/alerts/state", { params, signal }),
    retry: false,
    refetchInterval: (q) => (q.state.status === "error" ? 3 * REFRESH_MS : REFRESH_MS),
  });
}

const paramsOf = (f: AlertFilter) => ({
  tenant: f.tenant, virtualSite: f.virtualSite, site: f.site.trim(), severity: f.severity, state: f.state === "all" ? "" : f.state, q: f.q.trim(),
});

export function useAlerts(f: AlertFilter, enabled = true) {
  const params = paramsOf(f);
  return useInfiniteQuery({
    queryKey: keys.alerts(JSON.stringify(params)),
    enabled,
    queryFn: ({ signal, pageParam }) => api<AlertList>("GET", "/api/v1/alerts", { params: { ...params, limit: PAGE, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: AlertList) => p.nextCursor || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
}

export type GroupSort = "severity" | "count" | "newest";

/** What fires as routes group it: a group is one notification. */
export function useAlertGroups(f: AlertFilter, sort: GroupSort) {
  const params = { ...paramsOf(f), sort, limit: PAGE };
  return useQuery({
    queryKey: keys.alertGroups(JSON.stringify(params)),
    queryFn: ({ signal }) => api<AlertGroupList>("GET", "/api/v1/alerts/groups", { params, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
}

/** How often rules notified in the last 24 hours. */
export function useLoudness(tenant: string) {
  return useQuery({
    queryKey: keys.loudness(tenant),
    queryFn: ({ signal }) => api<LoudnessList>("GET", "/api/v1/alerts/notifications", { params: { tenant, limit: 1000 }, signal }),
    refetchInterval: 3 * REFRESH_MS,
  });
}

/** The counts by severity of what matches but for the severity. */
export function useAlertCounts(f: AlertFilter, enabled: boolean) {
  const params = paramsOf({ ...f, severity: "" });
  return useQuery<SeverityCounts>({
    queryKey: keys.alertTotals(JSON.stringify(params)),
    enabled,
    queryFn: ({ signal }) => api<AlertList>("GET", "/api/v1/alerts", { params: { ...params, limit: 1 }, signal }).then((l) => l.counts),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
}

/** The first few that fire, for a panel. */
export function useTopAlerts(scope: AlertScope, limit: number) {
  const params = { tenant: scope.tenant, virtualSite: scope.virtualSite, site: scope.site, state: "active", limit };
  return useQuery({
    queryKey: keys.alerts(JSON.stringify(["top", params])),
    queryFn: ({ signal }) => api<AlertList>("GET", "/api/v1/alerts", { params, signal }),
    refetchInterval: REFRESH_MS,
  });
}

export function useAlert(tenant: string, fingerprint: string) {
  return useQuery({
    queryKey: keys.alert(tenant, fingerprint),
    queryFn: ({ signal }) => api<AlertDetail>("GET", `/api/v1/alerts/${encodeURIComponent(fingerprint)}`, { params: { tenant }, signal }),
    refetchInterval: REFRESH_MS,
  });
}

/** All alerts of a tenant now, to try a silence on; whole says whether these are all. */
export function useAllAlerts(tenant: string) {
  return useQuery({
    queryKey: keys.allAlerts(tenant),
    enabled: tenant !== "",
    queryFn: async ({ signal }) => {
      const alerts: Alert[] = [];
      let cursor: string | undefined = "";
      for (let i = 0; i < TRIED_PAGES && cursor !== undefined; i++) {
        const p: AlertList = await api<AlertList>("GET", "/api/v1/alerts", { params: { tenant, limit: 1000, cursor }, signal });
        alerts.push(...p.alerts);
        cursor = p.nextCursor || undefined;
      }
      return { alerts, whole: cursor === undefined };
    },
    staleTime: REFRESH_MS,
  });
}

export function useSilences(tenant: string, state: SilenceState | "all", enabled = true) {
  return useQuery<Silence[]>({
    queryKey: keys.silences(JSON.stringify([tenant, state])),
    enabled,
    queryFn: ({ signal }) => api<{ silences: Silence[] }>("GET", "/api/v1/silences", { params: { tenant, state }, signal }).then((r) => r.silences),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
    retry: (count, e) => isTransient(e) && count < 1,
  });
}

export function useSilence() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ tenant, request }: { tenant: string; request: SilenceRequest }) => api<{ id: string }>("POST", "/api/v1/silences", { params: { tenant }, body: request }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.alerting }),
  });
}

interface GroupSilence {
  key: string;
  tenant: string;
  request: SilenceRequest;
}

/** Makes silences one after the other, up to the first that fails. */
export function useSilenceGroups() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ all }: { all: readonly GroupSilence[] }) => {
      const done: string[] = [];
      let failed: Error | undefined;
      for (const { key, tenant, request } of all) {
        try {
          await api<{ id: string }>("POST", "/api/v1/silences", { params: { tenant }, body: request });
          done.push(key);
        } catch (e) {
          failed = e instanceof Error ? e : new Error(String(e));
          break;
        }
      }
      return { done, failed };
    },
    onSettled: () => client.invalidateQueries({ queryKey: keys.alerting }),
  });
}

export function useExpire() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (s: Silence) => api<void>("DELETE", `/api/v1/silences/${encodeURIComponent(s.id)}`, { params: { tenant: s.tenant } }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.alerting }),
  });
}
