import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { type BetweenAnswer, hasBetween } from "../lib/between";
import { alignedWindow, type Range } from "../lib/history";
import { api, Problem, serverNow } from "./client";
import { keys } from "./keys";
import type { Matrix, MetricCondition, MetricNames, TimelineEvent, TimelineKind, TimelinePage, Vector } from "./types";

/** More lines than anybody can tell apart. */
export const MAX_SERIES = 200;
const NAMES = 50;
const MAX_EVENTS = 500;

/** What an expression measures and compares with, narrowed to a site if there is one. */
export function useCondition(query: string, site: string) {
  return useQuery({
    queryKey: keys.condition(query, site),
    enabled: query !== "",
    queryFn: ({ signal }) => api<MetricCondition>("GET", "/api/v1/metrics/condition", { params: { query, site }, signal }),
    staleTime: Infinity,
  });
}

/** What the metric store says against a query is a problem like any other. */
function answered<A extends { status: string; error?: string }>(a: A): A {
  if (a.status === "error") throw new Problem(422, { title: "The query failed", detail: a.error ?? "" });
  return a;
}

/** An expression over a range that ends now, or at an end in seconds. */
export function useRange(tenant: string, query: string, range: Range, end?: number) {
  return useQuery({
    queryKey: keys.metrics("range", tenant, query, range.id, end),
    enabled: query !== "",
    queryFn: async ({ signal }) => {
      const at = alignedWindow(end ?? serverNow() / 1000, range);
      const m = await api<Matrix>("GET", "/api/v1/metrics/query_range", { params: { query, start: at.start, end: at.end, step: range.step, tenant, limit: MAX_SERIES }, signal });
      return { ...at, matrix: answered(m) };
    },
    retry: false,
    staleTime: 10_000,
    refetchInterval: (q) => (end === undefined && q.state.status !== "error" ? Math.max(15, range.step) * 1000 : false),
    placeholderData: keepPreviousData,
  });
}

/** How long what is between the points may take, in seconds: it is more work than the points. */
const PATIENCE = 10;

/** For useBetween, where there are too many lines. */
export const NO_POINTS = { data: undefined, isPlaceholderData: false };

/** What an expression was between the points that were asked for; no points: nothing is asked. */
export function useBetween(tenant: string, query: string, range: Range, points: { data?: { start: number; end: number } | undefined; isPlaceholderData: boolean }) {
  const over = points.isPlaceholderData ? undefined : points.data;
  const key = (end: number | undefined) => keys.metrics("between", tenant, query, range.id, end);
  return useQuery({
    queryKey: key(over?.end),
    enabled: query !== "" && over !== undefined && hasBetween(range),
    queryFn: async ({ signal }): Promise<BetweenAnswer> => {
      const { start, end } = over!;
      const ask = async (within: "least" | "largest" | "coverage") =>
        answered(await api<Matrix>("GET", "/api/v1/metrics/query_range", { params: { query, start, end, step: range.step, tenant, limit: MAX_SERIES, timeout: PATIENCE, within }, signal }));
      const [least, largest, coverage] = await Promise.all([ask("least"), ask("largest"), ask("coverage")]);
      return { start, end, step: range.step, least, largest, coverage };
    },
    retry: false,
    staleTime: Infinity,
    // That of a little earlier stands at its own times until the new one is there.
    placeholderData: (earlier, q) => (JSON.stringify(q?.queryKey.slice(0, -1)) === JSON.stringify(key(undefined).slice(0, -1)) ? earlier : undefined),
  });
}

/** An expression now, or at a time in seconds; asked again every so many ms if every is given. */
export function useInstant(tenant: string, query: string, time?: number, every: number | false = false) {
  return useQuery({
    queryKey: keys.metrics("instant", tenant, query, "", time),
    enabled: query !== "",
    queryFn: async ({ signal }) => answered(await api<Vector>("GET", "/api/v1/metrics/query", { params: { query, time, tenant, limit: MAX_SERIES }, signal })),
    refetchInterval: (q) => (q.state.status !== "error" ? every : false),
    retry: false,
    staleTime: 10_000,
    placeholderData: keepPreviousData,
  });
}

export interface NameAsk {
  /** Whose values; "": names of labels. */
  label: string;
  match: string;
  q: string;
}

/** Names that complete what somebody types; null asks for none. */
export function useNames(tenant: string, ask: NameAsk | null) {
  return useQuery({
    queryKey: keys.metricNames(tenant, JSON.stringify(ask)),
    enabled: ask !== null,
    queryFn: ({ signal }) => api<MetricNames>("GET", "/api/v1/metrics/names", { params: { ...ask, tenant, limit: NAMES }, signal }),
    retry: false,
    staleTime: 60_000,
    // While a word grows its earlier names stand; those of another place never do.
    placeholderData: (earlier, query) => {
      const before = query?.queryKey[2] ? (JSON.parse(query.queryKey[2]) as NameAsk | null) : null;
      return before && ask && before.label === ask.label && before.match === ask.match ? earlier : undefined;
    },
  });
}

/**
 * What happened within a time, for a chart of a site, or of a tenant without one. Edits of
 * policies name no site; those of the tenant come along.
 */
export function useMarks(ref: { tenant: string; site: string }, from: number, to: number, kinds: readonly TimelineKind[]) {
  const page = (params: Record<string, string | number | undefined>) => ({
    queryKey: keys.timeline(JSON.stringify(["marks", params, from, to])),
    enabled: to > from && kinds.length > 0 && params.kind !== "",
    queryFn: ({ signal }: { signal: AbortSignal }) => api<TimelinePage>("GET", "/api/v1/timeline", { params: { ...params, from, to, limit: MAX_EVENTS }, signal }),
    retry: false,
    staleTime: 10_000,
    placeholderData: keepPreviousData,
  });
  const edits = kinds.includes("policy") && ref.site !== "";
  return useQueries({
    queries: [
      page({ tenant: ref.tenant, site: ref.site, kind: kinds.filter((k) => !edits || k !== "policy").join(",") }),
      page({ tenant: ref.tenant, kind: edits ? "policy" : "" }),
    ],
    combine: (all) => {
      const events: TimelineEvent[] = [...(all[0].data?.events ?? []), ...(edits ? (all[1].data?.events.filter((e) => !e.site || e.site === ref.site) ?? []) : [])];
      return { events: events.sort((a, b) => (a.id < b.id ? 1 : -1)), error: all[0].error ?? all[1].error, more: all.some((q) => q.data?.nextCursor) };
    },
  });
}
