import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type LogFilter, searchParams, tailParams } from "../lib/log-filter";
import { mergeLines } from "../lib/log-lines";
import { api, withParams } from "./client";
import { keys } from "./keys";
import { PATIENCE, useLate } from "./late";
import type { Link } from "./link";
import { logTail, type TailState } from "./tail";
import type { LogPage, LogRecord, MissingRegion } from "./types";

const PAGE = 200;
/** As many lines as a live view keeps. */
export const TAIL_LINES = 2000;
const LIVE_REFRESH_MS = 30_000;
/** A tab in the background keeps its stream for this long. */
const HIDDEN_MS = 60_000;

/**
 * The lines that match, newest first, page after page. What came within two seconds is shown; regions that are late
 * are asked once more, for as long as they may take, and added.
 */
export function useLogSearch(f: LogFilter, tenant: string) {
  const params = searchParams(f, tenant);
  const queryKey = keys.logs(JSON.stringify([params, f.live]));
  const client = useQueryClient();
  const search = useInfiniteQuery({
    queryKey,
    enabled: tenant !== "",
    queryFn: ({ signal, pageParam }) => {
      const shown = client.getQueryData<InfiniteData<LogPage>>(queryKey);
      // What stands there is replaced by all of it, not by a part.
      const again = shown !== undefined && (pageParam === "" || shown.pageParams.includes(pageParam));
      return api<LogPage>("GET", "/api/v1/logs/search", { params: { ...params, limit: PAGE, cursor: pageParam, patience: again ? "" : PATIENCE }, signal });
    },
    initialPageParam: "",
    getNextPageParam: (p: LogPage) => p.nextCursor || undefined,
    placeholderData: keepPreviousData,
    structuralSharing: false,
    staleTime: 0, // new lines come in all the time
    gcTime: 60_000,
    refetchInterval: f.live ? LIVE_REFRESH_MS : false,
  });
  useLate(search, search.data?.pages ?? []);
  return search;
}

export interface Tail {
  lines: readonly LogRecord[];
  missing: readonly MissingRegion[] | undefined;
  state: TailState;
  paused: boolean;
  /** Lines that came in while paused. */
  waiting: number;
  /** So many waiting lines that no more are fetched until it goes on. */
  full: boolean;
  pause: () => void;
  resume: () => void;
  retry: () => void;
}

interface Lines {
  shown: readonly LogRecord[];
  waiting: readonly LogRecord[];
}

const NONE: Lines = { shown: [], waiting: [] };

/** Follows the lines that match; onOpen is called when what was before must be searched for. */
export function useLogTail(f: LogFilter, tenant: string, onOpen: () => void): Tail {
  const url = useMemo(() => (f.live && tenant ? withParams("/api/v1/logs/tail", tailParams(f, tenant)) : ""), [f, tenant]);
  const [lines, setLines] = useState<Lines>(NONE);
  const [missing, setMissing] = useState<readonly MissingRegion[]>();
  const [state, setState] = useState<TailState>({ kind: "connecting" });
  const [paused, setPaused] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const isPaused = useRef(false);
  const tail = useRef<Link | null>(null);
  const waiting = useRef(0);
  const open = useRef(onOpen);
  open.current = onOpen;

  useEffect(() => {
    setLines(NONE);
    setMissing(undefined);
    isPaused.current = false;
    waiting.current = 0;
    setPaused(false);
    if (!url) return;
    const t = logTail({
      url,
      onState: setState,
      onMissing: setMissing,
      onOpen: (resumed) => {
        if (!resumed) open.current();
      },
      onHits: (hits) => {
        if (isPaused.current) {
          waiting.current += hits.length;
          setLines((l) => ({ ...l, waiting: mergeLines(l.waiting, hits, TAIL_LINES) }));
          // Enough: the server knows where this stood, and goes on from there.
          if (waiting.current >= TAIL_LINES) t.hold();
        } else setLines((l) => ({ ...l, shown: mergeLines(l.shown, hits, TAIL_LINES) }));
      },
    });
    tail.current = t;
    t.start();
    let hidden: ReturnType<typeof setTimeout> | undefined;
    const onVisible = () => {
      clearTimeout(hidden);
      // Without HTTP/2 a browser has six connections to a server for all its tabs.
      if (document.visibilityState === "hidden") hidden = setTimeout(() => t.hold(), HIDDEN_MS);
      else if (waiting.current < TAIL_LINES) t.resume();
    };
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      clearTimeout(hidden);
      document.removeEventListener("visibilitychange", onVisible);
      tail.current = null;
      t.stop();
    };
  }, [url, attempt]);

  const pause = useCallback(() => {
    isPaused.current = true;
    setPaused(true);
  }, []);
  const resume = useCallback(() => {
    if (!isPaused.current) return;
    isPaused.current = false;
    waiting.current = 0;
    setPaused(false);
    setLines((l) => ({ shown: mergeLines(l.shown, l.waiting, TAIL_LINES), waiting: [] }));
    tail.current?.resume();
  }, []);
  const retry = useCallback(() => setAttempt((n) => n + 1), []);
  return { lines: lines.shown, missing, state, paused, waiting: lines.waiting.length, full: paused && state.kind === "held", pause, resume, retry };
}
