import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { api } from "./client";
import { keys } from "./keys";
import type { TimelineKind, TimelinePage } from "./types";

const POLL_MS = 10_000;

export interface TimelineQuestion {
  tenant: string;
  site?: string;
  virtualSite?: string;
  kinds: readonly TimelineKind[];
  limit: number;
}

/** What happened, the newest first, page by page. Pages that were asked for are asked again. */
export function useTimeline({ kinds, ...ask }: TimelineQuestion) {
  return useInfiniteQuery({
    queryKey: keys.timeline(JSON.stringify({ ...ask, kinds })),
    queryFn: ({ signal, pageParam }) => api<TimelinePage>("GET", "/api/v1/timeline", { params: { ...ask, kind: kinds.join(","), cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: TimelinePage) => p.nextCursor || undefined,
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
}
