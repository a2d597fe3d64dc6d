import { keepPreviousData, type QueryClient, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { linesOf, promString, type Range, type Sample } from "../lib/history";
import { anyOf, cut, type Groups, hasEnded, rolloutKey, type RolloutRef, spread, windowOf } from "../lib/rollouts";
import { siteKey, type SiteRef } from "../lib/site";
import { api, Problem, serverNow } from "./client";
import { keys } from "./keys";
import { Link as StreamLink, type LinkOptions } from "./link";
import { useBetween } from "./metric-queries";
import type { Dimension, Matrix, Rollout, RolloutDetail, RolloutList, RolloutSite, RolloutSiteList } from "./types";

// How often is asked where no stream says what changes: what counts is in one small object.
const LIST_MS = 5000;
const MOVING_MS = 2500;
const ENDED_MS = 30_000;
const PAGE = 50;
/** Of more sites than these the steps are asked for less often. */
const MANY = 1000;

const pathOf = (r: RolloutRef) => `/api/v1/rollouts/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}`;

export interface RolloutQuestion {
  tenant: string;
  q: string;
  state: string;
  phase: string;
}

export function useRollouts(ask: RolloutQuestion) {
  return useInfiniteQuery({
    queryKey: keys.rolloutList(JSON.stringify(ask)),
    queryFn: ({ signal, pageParam }) => api<RolloutList>("GET", "/api/v1/rollouts", { params: { ...ask, limit: PAGE, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: RolloutList) => p.nextCursor || undefined,
    refetchInterval: LIST_MS,
    placeholderData: keepPreviousData,
  });
}

/** Where it stands: by its stream, and while that is away by asking again and again. */
export function useRollout(r: RolloutRef) {
  const live = useRolloutStream(r);
  return useQuery({
    queryKey: keys.rollout(rolloutKey(r)),
    queryFn: ({ signal }) => api<RolloutDetail>("GET", pathOf(r), { params: { tenant: r.tenant }, signal }),
    refetchInterval: (q) => (live || (q.state.data && hasEnded(q.state.data.phase)) ? ENDED_MS : MOVING_MS),
  });
}

/** Keeps what is known of a rollout true; whether the stream is there. */
function useRolloutStream(r: RolloutRef): boolean {
  const client = useQueryClient();
  const [live, setLive] = useState(false);
  useEffect(() => {
    const stream = rolloutStream(r, client, setLive);
    const nudge = () => {
      if (document.visibilityState === "visible") stream.nudge();
      else stream.hold();
    };
    document.addEventListener("visibilitychange", nudge);
    window.addEventListener("online", nudge);
    stream.start();
    return () => {
      stream.stop();
      document.removeEventListener("visibilitychange", nudge);
      window.removeEventListener("online", nudge);
      setLive(false);
    };
  }, [r, client]);
  return live;
}

/** The link to a rollout's stream, which puts what it says where pages read it. */
export function rolloutStream(r: RolloutRef, client: QueryClient, onLive: (live: boolean) => void, o: Pick<LinkOptions, "read" | "random"> = {}): StreamLink {
  const tenant = r.tenant ? `?tenant=${encodeURIComponent(r.tenant)}` : "";
  return new StreamLink({
    ...o,
    url: `${pathOf(r)}/stream${tenant}`,
    resumes: false,
    onState: (s) => onLive(s.kind === "live"),
    onOpen: () => undefined, // it begins with the whole
    onEvent: (type, data) => {
      if (type === "rollout") client.setQueryData(keys.rollout(rolloutKey(r)), data as RolloutDetail);
      else if (type === "removed") void client.invalidateQueries({ queryKey: keys.rollout(rolloutKey(r)) });
    },
  });
}

/** All its sites at once, in the order of the waves: the picture has them all. */
export function useRolloutSites(r: RolloutRef, ended: boolean, enabled = true) {
  return useQuery({
    queryKey: keys.rolloutSites(rolloutKey(r), ended),
    enabled,
    queryFn: async ({ signal }) => {
      const all: RolloutSite[] = [];
      for (let cursor: string | undefined = "", i = 0; cursor !== undefined && i < 100; i++) {
        const page: RolloutSiteList = await api<RolloutSiteList>("GET", `${pathOf(r)}/sites`, { params: { tenant: r.tenant, limit: 10_000, cursor }, signal });
        all.push(...page.sites);
        cursor = page.nextCursor || undefined;
      }
      return all;
    },
    refetchInterval: (q) => (ended ? ENDED_MS : (q.state.data?.length ?? 0) > MANY ? 15_000 : MOVING_MS),
    placeholderData: keepPreviousData,
  });
}

/** Those under way that move an object; KIND.GROUP/NAME. */
export function useRolloutsOf(tenant: string, namespace: string, object: string) {
  return useQuery({
    queryKey: keys.rolloutsOf(`${tenant}/${namespace}/${object}`),
    queryFn: ({ signal }) => api<RolloutList>("GET", "/api/v1/rollouts", { params: { tenant, namespace, object, limit: 5 }, signal }).then((l) => l.rollouts),
    refetchInterval: LIST_MS,
  });
}

/** As many rollouts under way are looked into for one site. */
const LOOKED_INTO = 10;

export interface AtSite {
  rollout: Rollout;
  at: RolloutSite;
}

/** Where a site stands in each rollout that is under way. */
export function useRolloutsAtSite(site: SiteRef) {
  return useQuery({
    queryKey: keys.rolloutsAtSite(siteKey(site)),
    queryFn: async ({ signal }): Promise<AtSite[]> => {
      const list = await api<RolloutList>("GET", "/api/v1/rollouts", { params: { tenant: site.tenant, state: "active", limit: LOOKED_INTO }, signal });
      const found = await Promise.all(
        list.rollouts.map(async (rollout) => {
          const page = await api<RolloutSiteList>("GET", `${pathOf(rollout)}/sites`, { params: { tenant: rollout.tenant, q: site.name, limit: 100 }, signal });
          const at = page.sites.find((s) => s.site === site.name);
          return at ? [{ rollout, at }] : [];
        }),
      );
      return found.flat();
    },
    refetchInterval: 10_000,
  });
}

export interface Comparison {
  start: number;
  end: number;
  step: number;
  changed: readonly Sample[];
  unchanged: readonly Sample[];
}

/** The mean of a score, "" for the site's own, at some sites; "" for none. */
function meanOf(sites: readonly string[], dimension: Dimension | ""): string {
  if (sites.length === 0) return "";
  const match = `site=~${promString(anyOf(sites))}`;
  const series = dimension ? `muster_site_health_dimension_score{dimension=${promString(dimension)},${match}}` : `muster_site_health_score{${match}}`;
  return `avg(max by (site) (${series}))`;
}

/** The mean of a score at the sites that changed and at those that did not. */
export function useComparison(r: RolloutDetail, groups: Groups, dimension: Dimension | "") {
  const who = [spread(groups.changed), spread(groups.unchanged)] as const;
  return useQuery({
    queryKey: keys.rolloutScores(rolloutKey(r), dimension, `${anyOf(who[0])}/${anyOf(who[1])}/${r.endedAt ?? ""}`),
    queryFn: async ({ signal }): Promise<Comparison> => {
      const { start, end, step } = windowOf(r, serverNow());
      const ask = async (sites: readonly string[]) => {
        const query = meanOf(sites, dimension);
        if (!query) return [];
        const m = await api<Matrix>("GET", "/api/v1/metrics/query_range", { params: { query, start, end, step, tenant: r.tenant }, signal });
        if (m.status === "error") throw new Problem(502, { title: "The query failed", detail: m.error ?? "" });
        return linesOf(m, "", start, end, step).get("") ?? [];
      };
      const [changed, unchanged] = await Promise.all([ask(who[0]), ask(who[1])]);
      return { start, end, step, changed, unchanged: cut(unchanged, groups.until) };
    },
    refetchInterval: hasEnded(r.phase) ? 60_000 : 10_000,
    placeholderData: keepPreviousData,
  });
}

/** What the means were between the points of a comparison. */
export function useComparisonBetween(r: RolloutDetail, groups: Groups, dimension: Dimension | "", points: { data: Comparison | undefined; isPlaceholderData: boolean }) {
  const { start, end, step } = points.data ?? { start: 0, end: 0, step: 0 };
  const range = useMemo<Range>(() => ({ id: `${start}/${step}`, label: "", seconds: end - start, step }), [start, end, step]);
  const changed = useBetween(r.tenant, meanOf(spread(groups.changed), dimension), range, points);
  const unchanged = useBetween(r.tenant, meanOf(spread(groups.unchanged), dimension), range, points);
  return { range, changed: changed.data, unchanged: unchanged.data, error: changed.error ?? unchanged.error };
}

/** What a person may want of a rollout. */
export type Wish = { action: "pause" | "resume" | "abort" } | { action: "promote"; wave: number } | { action: "retry"; sites: string[] };

export function useControl(r: RolloutRef) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ action, ...body }: Wish) => api<unknown>("POST", `${pathOf(r)}/${action}`, { params: { tenant: r.tenant }, body }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.rollouts }),
  });
}
