import { useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useLoudness } from "../api/alert-queries";
import { useBetween, useCondition, useInstant, useMarks, useRange } from "../api/metric-queries";
import type { AlertDetail } from "../api/types";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { RangePicker } from "../components/range-picker";
import { ProblemNote, Skeleton } from "../components/states";
import { expressionOf } from "../lib/alert-filter";
import { betweenOf, withBetween } from "../lib/between";
import { firingBands, type Line } from "../lib/chart";
import { exploreHref } from "../lib/explore";
import { formatCount, formatValue } from "../lib/format";
import { linesByName, rangeOf } from "../lib/history";
import { MARKED, marksOf } from "../lib/marks";
import { unitOf, withoutName } from "../lib/promql";

/** The labels of a series are the alert's as well; an alert has more. */
const isOf = (metric: Record<string, string>, a: AlertDetail): boolean => Object.entries(metric).every(([k, v]) => k === "__name__" || a.labels[k] === v);

/** What the alert's rule measures, over time. Log rules and silent sites have no expression. */
export function AlertChart({ alert: a }: { alert: AlertDetail }) {
  const [, navigate] = useLocation();
  const address = useSearch();
  const range = rangeOf(new URLSearchParams(address).get("range") ?? "24h");
  const expr = expressionOf(a.generatorURL);
  const condition = useCondition(expr, a.site);
  const value = condition.data?.value ?? "";
  const query = useRange(a.tenant, value, range);
  const between = useBetween(a.tenant, value, range, query);
  const now = useInstant(a.tenant, value);
  const data = query.data;
  const happened = useMarks({ tenant: a.tenant, site: a.site }, data?.start ?? 0, data?.end ?? 0, MARKED);
  const marks = useMemo(() => marksOf(happened.events, data?.start ?? 0, data?.end ?? 0), [happened.events, data?.start, data?.end]);
  const lines = useMemo<Line[]>(() => {
    if (!data) return [];
    const own = (data.matrix.data?.result ?? []).filter((s) => isOf(s.metric, a));
    const lines = linesByName({ ...data.matrix, data: { resultType: "matrix", result: own } }, data.start, data.end, range.step);
    return withBetween(lines, between.data && betweenOf(between.data, (m) => (isOf(m, a) ? withoutName(m) : undefined)));
  }, [data, between.data, range.step, a]);
  const bands = useMemo(() => firingBands(condition.data?.bounds ?? []), [condition.data]);
  const unit = unitOf(value);
  const format = useMemo(() => (v: number) => formatValue(v, unit), [unit]);
  const found = now.data?.data?.result;
  const current = Array.isArray(found) ? (found as { metric: Record<string, string>; value: [number, string] }[]).filter((s) => typeof s === "object" && "metric" in s && isOf(s.metric, a)) : [];
  if (!expr) return null;
  const error = condition.error ?? query.error;
  const setRange = (id: string) => {
    const p = new URLSearchParams(address);
    p.set("range", id);
    navigate(`${location.pathname}?${p.toString()}`, { replace: true });
  };
  return (
    <section className="card" aria-label="Expression">
      <header>
        <h2>
          {current.length === 1 ? `Now ${format(Number(current[0]!.value[1]))}` : "Expression"}
          {condition.data && condition.data.bounds.length > 0 && <span className="muted"> fires at {condition.data.bounds.map((b) => `${b.op} ${format(b.value)}`).join(" and ")}</span>}
        </h2>
        <RangePicker range={range} onChange={(r) => setRange(r.id)} />
      </header>
      <div className="body stack">
        {error && <ProblemNote slim error={error} doing={data ? "refresh the chart; it is older" : "read what the rule measures"} onRetry={() => void (condition.error ? condition.refetch() : query.refetch())} />}
        {!error && !data && <Skeleton height={200} />}
        {data && lines.length === 0 && <p className="muted">There are no samples of it in this time; look further back, or at the expression itself.</p>}
        {data && lines.length > 0 && <Chart axis lines={lines} bands={bands} marks={marks} start={data.start} end={data.end} height={220} format={format} bytes={unit === "bytes"} label={`What ${a.name} measures${a.site ? ` at ${a.site}` : ""} over the last ${range.label}`} />}
        <pre className="query mono" tabIndex={0}>{condition.data?.query ?? expr}</pre>
        <p className="small muted">
          {lines.length > 1 && <>{lines.map((l) => l.name).slice(0, 4).join(" · ")} · </>}<BetweenNote range={range} known={between.data !== undefined} error={between.error} /> <Link href={exploreHref({ tenant: a.tenant, query: value, range: range.id })}>Open in Metrics</Link>
        </p>
      </div>
    </section>
  );
}

/** How often the alert's rule had somebody notified. */
export function RuleLoudness({ alert: a }: { alert: AlertDetail }) {
  const list = useLoudness(a.tenant);
  const r = list.data?.rules.find((x) => x.rule === a.name && x.tenant === a.tenant);
  if (!list.data?.counted) return null;
  return (
    <span>
      {" · "}
      <Link href={`/alerts?tab=loudest&tenant=${encodeURIComponent(a.tenant)}`}>
        this rule sent {formatCount(r?.notifications ?? 0)} {r?.notifications === 1 ? "notification" : "notifications"} in {list.data.hours} h
      </Link>
    </span>
  );
}
