import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { useLocation, useSearch } from "wouter";
import { Problem } from "../api/client";
import { type Tail, TAIL_LINES, useLogSearch, useLogTail } from "../api/log-queries";
import { sessionQuery } from "../api/queries";
import type { LogRecord, MissingRegion } from "../api/types";
import { Histogram } from "../components/histogram";
import { LogList } from "../components/log-list";
import { isDown, isForbidden, ServiceNote } from "../components/service-note";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { formatCount, plural } from "../lib/format";
import { formatLogFilter, LOG_RANGES, type LogFilter, logsHref, parseLogFilter } from "../lib/log-filter";
import { rfc3339 } from "../lib/time-span";
import { mergeLines } from "../lib/log-lines";
import { addClause } from "../lib/log-query";
import { formatClock } from "../lib/time";
import { useWholeAddress } from "../lib/use-whole-address";
import { LogFilters } from "../panels/logs-filters";

export function LogsPage() {
  const address = useSearch();
  const [, navigate] = useLocation();
  const session = useQuery(sessionQuery);
  const filter = useMemo(() => parseLogFilter(address), [address]);
  const tenants = session.data?.tenants ?? [];
  const tenant = filter.tenant || tenants[0] || "";
  useTitle("Logs");
  useWholeAddress(logsHref({ ...filter, tenant }), filter.tenant === "" && tenant !== "");

  const search = useLogSearch(filter, tenant);
  const { refetch } = search;
  const tail = useLogTail(filter, tenant, useCallback(() => void refetch(), [refetch]));
  const change = useCallback(
    (f: Partial<LogFilter>) => {
      const next = formatLogFilter({ ...filter, ...f });
      if (next === formatLogFilter(filter)) void refetch();
      else navigate(logsHref({ ...filter, ...f }));
    },
    [filter, navigate, refetch],
  );
  const onFilter = useCallback((field: string, value: string, not: boolean) => change({ query: addClause(filter.query, field, value, not) }), [change, filter.query]);

  const pages = search.data?.pages;
  const first = pages?.[0];
  const found = useMemo(() => pages?.flatMap((p) => p.hits) ?? [], [pages]);
  const lines = useShown(found, tail, filter.live);
  // What was found before stays in sight when it can't be had anew.
  const error = (pages ? null : search.error) ?? (tail.state.kind === "failed" ? tail.state.error : null);
  const outdated = pages && search.error && !search.isFetchNextPageError ? search.error : null;
  const missing = (filter.live ? tail.missing : undefined) ?? missingOf(pages?.map((p) => p.missingRegions));
  const changing = search.isPlaceholderData;

  return (
    <>
      <h1 className="visually-hidden">Logs</h1>
      <div className="logs">
        <LogFilters filter={filter} tenant={tenant} tenants={tenants} error={error} busy={search.isFetching && !search.isFetchingNextPage} onChange={change} />
        <div className="log-notes">
          {missing.length > 0 && !error && <Missing regions={missing} />}
          {outdated && <ServiceNote slim older error={outdated} service="logs" onRetry={() => void refetch()} />}
        </div>
        <section className={error ? "log-time off" : "log-time"} aria-label="Lines over time" aria-busy={changing}>
          {first?.histogram && !error ? (
            <Histogram histogram={first.histogram} onSpan={(a, b) => change({ range: "", from: rfc3339(a), to: rfc3339(b), live: false })} />
          ) : (
            search.isPending && tenant && !error && <Skeleton height={64} />
          )}
        </section>
        <Bar filter={filter} tail={tail} total={error ? undefined : first?.total} shown={lines.length} changing={changing} onChange={change} />
        {error ? (
          <div className="log-none">
            <Failure error={error} onRetry={() => (tail.state.kind === "failed" ? tail.retry() : void refetch())} />
          </div>
        ) : lines.length > 0 ? (
          <LogList id={`${tenant} ${address}`} lines={lines} onFilter={onFilter} {...(filter.live ? { onAway: (away: boolean) => (away ? tail.pause() : tail.resume()) } : {})}>
            <End search={search} live={filter.live} shown={lines.length} />
          </LogList>
        ) : (
          <div className="log-none">
            {session.data && tenants.length === 0 ? (
              <Empty title="No tenant to read">
                <p>Your account may not read any tenant; whoever administers one can let you in.</p>
              </Empty>
            ) : search.isPending ? (
              <div className="body">
                <Skeleton height={20} count={12} />
              </div>
            ) : (
              <NoLines filter={filter} missing={missing.length > 0} onChange={change} />
            )}
          </div>
        )}
      </div>
    </>
  );
}

/** What was searched for, under what has come in since; it stands still while the tail is paused. */
function useShown(found: readonly LogRecord[], tail: Tail, live: boolean): readonly LogRecord[] {
  const held = useRef<readonly LogRecord[]>([]);
  const fresh = tail.lines;
  const merged = useMemo(() => (live ? mergeLines(fresh, found, TAIL_LINES) : found), [fresh, found, live]);
  const shown = live && tail.paused ? held.current : merged;
  useEffect(() => {
    held.current = shown;
  }, [shown]);
  return shown;
}

/** The newest word on each region, from all pages. */
function missingOf(pages: readonly MissingRegion[][] | undefined): MissingRegion[] {
  return pages?.at(-1) ?? [];
}

function Missing({ regions }: { regions: readonly MissingRegion[] }) {
  return (
    <div className="note slim warn" role="status">
      <strong>{plural(regions.length, "region is", "regions are")} missing</strong>
      <span>
        {regions.map((r, i) => (
          <span key={r.region}>
            {i > 0 && "; "}
            <b>{r.region}</b>: {r.reason}
          </span>
        ))}
        . Lines and figures are without {regions.length === 1 ? "it" : "them"}
        {regions.some((r) => r.late) ? " so far: still asking." : "."}
      </span>
    </div>
  );
}

function Failure({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  // What is wrong with a field is said at the field.
  if (error instanceof Problem && error.status === 400 && ["query", "from", "to", "tenant"].some((f) => error.fieldFault(f))) {
    return (
      <Empty title="The search can't be understood">
        <p>See what is wrong above; the question mark beside the query tells how to write one.</p>
      </Empty>
    );
  }
  if (isDown(error) || isForbidden(error)) return <ServiceNote error={error} service="logs" onRetry={onRetry} />;
  return <ProblemNote error={error} doing="search logs" onRetry={onRetry} />;
}

function NoLines({ filter: f, missing, onChange }: { filter: LogFilter; missing: boolean; onChange: (f: Partial<LogFilter>) => void }) {
  const at = LOG_RANGES.findIndex((r) => r.id === f.range);
  const wider = at >= 0 ? LOG_RANGES[at + 1] : undefined;
  const narrowed = f.query || f.virtualSite || f.site || f.namespace || f.severity.length > 0;
  return (
    <Empty title={f.live ? "No lines so far" : "No lines match"}>
      <p>
        {f.live ? "Lines that match are shown as they come in." : "No region that answered has such lines in this time."}
        {missing && " Some regions did not answer; see above."}
      </p>
      <div className="row wrap">
        {wider && !f.live && (
          <button type="button" className="button" onClick={() => onChange({ range: wider.id })}>
            Look at the last {wider.label}
          </button>
        )}
        {narrowed && (
          <button type="button" className="button" onClick={() => onChange({ query: "", virtualSite: "", site: "", namespace: "", severity: [] })}>
            Clear the search
          </button>
        )}
      </div>
    </Empty>
  );
}

function Bar({ filter, tail, total, shown, changing, onChange }: {
  filter: LogFilter; tail: Tail; total: number | undefined; shown: number; changing: boolean; onChange: (f: Partial<LogFilter>) => void;
}) {
  return (
    <div className="log-bar">
      <span role="status" className="small">
        {changing ? "Searching…" : total === undefined ? "" : total > shown && !filter.live ? `${plural(total, "line")}, ${formatCount(shown)} loaded` : plural(Math.max(total, shown), "line")}
      </span>
      {filter.live && <TailState tail={tail} />}
      <span className="row" style={{ marginLeft: "auto" }}>
        {filter.live && (
          <button type="button" className="button" onClick={() => (tail.paused ? backToTop(tail) : tail.pause())}>
            {tail.paused ? (tail.waiting > 0 ? `Show ${plural(tail.waiting, "new line")}` : "Go on") : "Pause"}
          </button>
        )}
        <button type="button" className={filter.live ? "button on" : "button"} aria-pressed={filter.live} onClick={() => onChange(filter.live ? { live: false } : { live: true, range: filter.range || "15m", from: "", to: "" })}>
          Live tail
        </button>
      </span>
    </div>
  );
}

function backToTop(tail: Tail): void {
  document.querySelector(".log-list")?.scrollTo({ top: 0 });
  tail.resume();
}

function TailState({ tail }: { tail: Tail }) {
  const s = tail.state;
  const text = tail.paused
    ? tail.full
      ? `Paused; ${formatCount(tail.waiting)} lines wait, the rest is fetched when you go on`
      : `Paused; ${plural(tail.waiting, "line waits", "lines wait")}`
    : {
        connecting: "Connecting",
        live: "Following",
        reconnecting: "Connection lost, trying again" + (s.kind === "reconnecting" && s.error && s.error.status > 0 ? `: ${s.error.detail || s.error.title}` : ""),
        held: "Paused while the page was hidden",
        failed: "Stopped",
      }[s.kind];
  const kind = tail.paused ? "paused" : s.kind === "reconnecting" || s.kind === "connecting" ? "reconnecting" : s.kind === "live" ? "live" : "stale";
  return (
    <span className={`live is-${kind}`} data-tail={tail.paused ? "paused" : s.kind}>
      <i aria-hidden />
      <span role="status">{text}</span>
    </span>
  );
}

function End({ search, live, shown }: { search: ReturnType<typeof useLogSearch>; live: boolean; shown: number }) {
  if (live) {
    return (
      <p className="log-end muted small">
        {shown >= TAIL_LINES ? `The newest ${formatCount(TAIL_LINES)} lines are kept here. ` : ""}Turn the live tail off to load older lines.
      </p>
    );
  }
  if (search.isFetchNextPageError) return <ProblemNote slim error={search.error} doing="load more lines" onRetry={() => void search.fetchNextPage()} />;
  if (!search.hasNextPage) return <p className="log-end muted small">No older lines in this time, as of {formatClock(search.dataUpdatedAt)}.</p>;
  return (
    <p className="log-end">
      <button type="button" className="button" disabled={search.isFetchingNextPage} onClick={() => void search.fetchNextPage()}>
        {search.isFetchingNextPage ? "Loading…" : "Load more"}
      </button>
    </p>
  );
}
