import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { MAX_SERIES, NO_POINTS, useBetween, useMarks, useNames, useRange } from "../api/metric-queries";
import { Problem } from "../api/client";
import { sessionQuery } from "../api/queries";
import { useMetricTenants } from "../api/rights";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { CompleteBox } from "../components/complete-box";
import { TenantSelect } from "../components/filters";
import { MarkedEvents, MarkPicker, useKinds } from "../components/marks";
import { RangePicker } from "../components/range-picker";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { APART, betweenOf, hasBetween, withBetween } from "../lib/between";
import { type Line, lineVariable } from "../lib/chart";
import { DASH, formatValue, plural } from "../lib/format";
import { linesByName, type Range, summarize } from "../lib/history";
import { marksOf } from "../lib/marks";
import { type Explore, exploreHref, parseExplore } from "../lib/explore";
import { completionOf, matchOf, placeOf, unitOf, wayOut, withoutName } from "../lib/promql";
import { useWholeAddress } from "../lib/use-whole-address";

const EXAMPLES = [
  ["CPU in use by site, %", '100 * (1 - avg by (site) (rate(node_cpu_seconds_total{mode="idle"}[5m])))'],
  ["Scores by site", "max by (site) (muster_site_health_score)"],
  ["Sites that are connected", "sum(muster_site_connected)"],
  ["Scrape targets that are down", "count by (site, job) (up == 0)"],
] as const;

const DRAWN = 24;

/** PromQL over whatever the fleet's store has: typed with completion, shown as chart and table. */
export function ExplorePage() {
  const address = useSearch();
  const asked = useMemo(() => parseExplore(address), [address]);
  const session = useQuery(sessionQuery);
  const tenants = useMetricTenants(session.data?.tenants ?? []);
  const tenant = asked.tenant || (tenants[0] ?? "");
  const [, navigate] = useLocation();
  const go = (e: Partial<Explore>) => navigate(exploreHref({ ...asked, tenant, ...e }));
  useTitle("Metrics");
  useWholeAddress(exploreHref({ ...asked, tenant }), asked.tenant === "" && tenant !== "");
  return (
    <div className="page stack">
      <div className="page-head">
        <div>
          <h1>Metrics</h1>
          <p className="muted">Whatever the fleet's metric store has, in PromQL. The address holds the query: copy it to share what you see.</p>
        </div>
        <div className="row wrap">
          <TenantSelect one value={tenant} tenants={tenants} width={150} onChange={(t) => go({ tenant: t })} />
          <RangePicker range={asked.span} onChange={(r) => go({ range: r.id })} />
        </div>
      </div>
      <Editor key={asked.query} tenant={tenant} query={asked.query} onSend={(query) => go({ query })} />
      {asked.query === "" && (
        <section className="card" aria-label="Examples">
          <header>
            <h2>Begin with</h2>
          </header>
          <ul className="examples body">
            {EXAMPLES.map(([what, query]) => (
              <li key={what}>
                <button type="button" className="button quiet" onClick={() => go({ query })}>
                  {what}
                </button>
                <code className="muted small truncate">{query}</code>
              </li>
            ))}
          </ul>
        </section>
      )}
      {asked.query !== "" && tenant !== "" && <Answer tenant={tenant} asked={asked} onNow={() => go({ end: 0 })} />}
    </div>
  );
}

function Editor({ tenant, query, onSend }: { tenant: string; query: string; onSend: (q: string) => void }) {
  const [text, setText] = useState(query);
  const [caret, setCaret] = useState<number | undefined>();
  const place = useMemo(() => (caret === undefined ? undefined : placeOf(text, caret)), [text, caret]);
  const names = useNames(tenant, tenant && place ? { label: place.kind === "metric" ? "__name__" : place.kind === "value" ? place.label : "", match: place.kind === "metric" ? "" : matchOf(place), q: place.word } : null);
  const completion = place && names.data ? completionOf(place, names.data.names, names.data.more) : undefined;
  const send = () => text.trim() && onSend(text.trim());
  return (
    <form
      className="explore-editor"
      role="search"
      aria-label="Query metrics"
      onSubmit={(e) => {
        e.preventDefault();
        send();
      }}
    >
      <CompleteBox label="PromQL" value={text} onChange={setText} onCaret={setCaret} completion={completion} fault={names.error && place ? `Names can't be completed: ${names.error instanceof Problem ? names.error.detail || names.error.title : String(names.error)}` : ""} maxLength={16384} placeholder="A metric's name, or an expression; Enter asks, Shift and Enter makes a line" onSend={send} />
      <button type="submit" className="button primary" disabled={!text.trim()}>
        Ask
      </button>
    </form>
  );
}

function Answer({ tenant, asked, onNow }: { tenant: string; asked: ReturnType<typeof parseExplore>; onNow: () => void }) {
  const end = asked.end || undefined;
  const range = useRange(tenant, asked.query, asked.span, end);
  const [alone, setAlone] = useState("");
  useEffect(() => setAlone(""), [asked.query]);
  const [kinds, toggle] = useKinds();
  const data = range.data;
  const site = /site="([a-z0-9-]+)"/.exec(asked.query)?.[1] ?? "";
  const happened = useMarks({ tenant, site }, data?.start ?? 0, data?.end ?? 0, kinds);
  const marks = useMemo(() => marksOf(happened.events, data?.start ?? 0, data?.end ?? 0), [happened.events, data?.start, data?.end]);
  const unit = unitOf(asked.query);
  const format = useMemo(() => (v: number) => formatValue(v, unit), [unit]);
  const many = (data?.matrix.data?.result.length ?? 0) > APART;
  const between = useBetween(tenant, asked.query, asked.span, many ? NO_POINTS : range);
  const all = useMemo<Line[]>(() => (data ? withBetween(linesByName(data.matrix, data.start, data.end, asked.span.step), between.data && betweenOf(between.data, withoutName)) : []), [data, between.data, asked.span.step]);
  const lines = useMemo(() => (alone ? all.filter((l) => l.name === alone) : all.slice(0, DRAWN)), [all, alone]);
  const error = range.error;
  const detail = error instanceof Problem ? error.detail || error.title : String(error ?? "");
  const warnings = data?.matrix.warnings ?? [];
  if (error && !data) {
    return (
      <>
        <ProblemNote error={error} doing="answer the query" onRetry={() => void range.refetch()} />
        {wayOut(detail) && <p className="note slim">{wayOut(detail)}</p>}
      </>
    );
  }
  if (!data) return <Skeleton height={280} />;
  return (
    <>
      {error && <ProblemNote slim error={error} doing="refresh the answer; it is older" onRetry={() => void range.refetch()} />}
      {warnings.length > 0 && <p className="note slim">{warnings.join(". ")}</p>}
      {all.length === 0 ? (
        <div className="card">
          <Empty title="No series">
            <p>Nothing in this time has these names and labels. Begin to type a name to see which there are, or look further back.</p>
          </Empty>
        </div>
      ) : (
        <section className="card" aria-label="Chart" aria-busy={range.isFetching}>
          <header>
            <h2>
              {asked.end ? "Up to a time that the link names" : `Last ${asked.span.label}`}
              {asked.end > 0 && (
                <button type="button" className="button quiet" onClick={onNow}>
                  Go to now
                </button>
              )}
            </h2>
            <MarkPicker kinds={kinds} onToggle={toggle} />
          </header>
          <div className="body stack">
            <Chart axis lines={lines} marks={marks} start={data.start} end={data.end} height={320} format={format} bytes={unit === "bytes"} label={`${asked.query} over ${asked.span.label}`} />
            <p className="muted small">
              {plural(all.length, "series", "series")}
              {!alone && all.length > DRAWN && `; the first ${DRAWN} are drawn, press a row to see it alone`}
              {all.length >= MAX_SERIES && `; more than ${MAX_SERIES} are cut off: aggregate with sum by (…) or narrow it with labels`}. <BetweenNote range={asked.span} known={between.data !== undefined} error={between.error} tooMany={many} />
            </p>
          </div>
        </section>
      )}
      {all.length > 0 && <Table lines={all} range={asked.span} format={format} alone={alone} onAlone={(n) => setAlone(n === alone ? "" : n)} />}
      <MarkedEvents events={happened.events} error={happened.error} more={happened.more} showSite={site === ""} />
    </>
  );
}

function Table({ lines, range, format, alone, onAlone }: { lines: readonly Line[]; range: Range; format: (v: number) => string; alone: string; onAlone: (name: string) => void }) {
  return (
    <section className="card" aria-label="Series">
      <header>
        <h2>Series</h2>
        <span className="muted small">{hasBetween(range) && lines.some((l) => !l.between) ? "newest, least and largest of the points; what was between them is not in it" : "newest, least and largest value of this time"}</span>
      </header>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of series">
        <table className="stacks">
          <thead>
            <tr>
              <th scope="col">Series</th>
              <th scope="col" className="num">
                Newest
              </th>
              <th scope="col" className="num">
                Least
              </th>
              <th scope="col" className="num">
                Largest
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((l, i) => {
              const sum = summarize(l.samples, l.between);
              return (
                <tr key={l.name}>
                  <th scope="row" className="series-name">
                    <button type="button" className="linkish" aria-pressed={alone === l.name} onClick={() => onAlone(l.name)}>
                      <i aria-hidden className="stroke" style={{ borderTopColor: i < DRAWN || alone === l.name ? `var(${lineVariable(alone ? 0 : i)})` : "transparent" }} />
                      <code>{l.name}</code>
                    </button>
                  </th>
                  <td className="num" data-label="Newest">{sum && sum.last !== null ? <b>{format(sum.last)}</b> : DASH}</td>
                  <td className="num" data-label="Least">{sum ? format(sum.min) : DASH}</td>
                  <td className="num" data-label="Largest">{sum ? format(sum.max) : DASH}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
