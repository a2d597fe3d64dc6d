import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { rfc3339, spanOf, type TimeSpan } from "../lib/time-span";
import { TIMES } from "../lib/timeline";
import { api, serverNow } from "./client";
import { keys } from "./keys";
import type { TimelineKind, TimelinePage } from "./types";

const POLL_MS = 10_000;

export interface TimelineQuestion {
  tenant: string;
  site?: string;
  virtualSite?: string;
  kinds: readonly TimelineKind[];
  /** Left out: all of it. */
  span?: TimeSpan;
  limit: number;
}

/** A range by name ends now, whenever it is asked for. */
function bounds(span: TimeSpan): { from?: string; to?: string } {
  if (!span.range) return { from: span.from, to: span.to };
  const s = spanOf(span, TIMES, serverNow());
  return s ? { from: rfc3339(s.start) } : {};
}

/** What happened, the newest first, page by page. Pages that were asked for are asked again. */
export function useTimeline({ kinds, span, ...ask }: TimelineQuestion) {
  return useInfiniteQuery({
    queryKey: keys.timeline(JSON.stringify({ ...ask, kinds, span })),
    queryFn: ({ signal, pageParam }) => api<TimelinePage>("GET", "/api/v1/timeline", { params: { ...ask, ...(span && bounds(span)), kind: kinds.join(","), cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: TimelinePage) => p.nextCursor || undefined,
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
}
