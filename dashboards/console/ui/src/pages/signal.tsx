import { useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useBetween, useCondition, useMarks, useRange } from "../api/metric-queries";
import { useSiteHealth } from "../api/queries";
import type { Signal, SiteDetail } from "../api/types";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { MarkedEvents, MarkPicker, useKinds } from "../components/marks";
import { RangePicker } from "../components/range-picker";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { betweenOf, withBetween, withoutGaps } from "../lib/between";
import { bandsOf, type Line } from "../lib/chart";
import { dimensionName } from "../lib/colour";
import { DASH, formatValue } from "../lib/format";
import { linesOf, rangeOf } from "../lib/history";
import { marksOf } from "../lib/marks";
import { exploreHref } from "../lib/explore";
import { sitePath, signalPath } from "../lib/site";
import { useTenantInAddress } from "../lib/use-whole-address";
import { Failed } from "./site";

/** One signal of a site over time, with its bounds and with what happened. */
export function SignalPage({ name, signal }: { name: string; signal: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const health = useSiteHealth({ tenant, name });
  useTitle(`${signal} at ${name}`);
  const site = health.data;
  useTenantInAddress(site);
  const found = site?.signals.find((s) => s.name === signal);
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={site ? sitePath(site) : sitePath({ tenant, name })}>← {name}</Link>
      </p>
      {health.isPending && (
        <>
          <h1>{signal}</h1>
          <Skeleton height={260} />
        </>
      )}
      {health.error && !site && <Failed error={health.error} name={name} page={`/signals/${encodeURIComponent(signal)}`} onRetry={() => void health.refetch()} />}
      {site && !found && (
        <div className="card">
          <Empty page title={`${name} has no signal ${signal}`}>
            <p>Its health policy{site.policy ? ` ${site.policy}` : ""} has none of that name. Policies may have changed since the link was made.</p>
            <Link href={sitePath(site)} className="button">
              Its signals
            </Link>
          </Empty>
        </div>
      )}
      {site && found && <Loaded site={site} signal={found} />}
    </div>
  );
}

function Loaded({ site, signal: s }: { site: SiteDetail; signal: Signal }) {
  const [, navigate] = useLocation();
  const range = rangeOf(new URLSearchParams(useSearch()).get("range") ?? "24h");
  const condition = useCondition(s.query, site.name);
  const query = useRange(site.tenant, condition.data?.value ?? "", range);
  const between = useBetween(site.tenant, condition.data?.value ?? "", range, query);
  const [kinds, toggle] = useKinds();
  const data = query.data;
  const happened = useMarks({ tenant: site.tenant, site: site.name }, data?.start ?? 0, data?.end ?? 0, kinds);
  const lines = useMemo<Line[]>(() => {
    if (!data) return [];
    const samples = linesOf(data.matrix, "site", data.start, data.end, range.step).get(site.name);
    const steps = between.data && betweenOf(between.data, (m) => ((m.site ?? "") === site.name ? s.name : undefined));
    return withBetween(samples ? [{ name: s.name, samples }] : [], s.sparse && steps ? withoutGaps(steps) : steps);
  }, [data, between.data, range.step, site.name, s.name, s.sparse]);
  const bands = useMemo(() => bandsOf(s.good, s.bad), [s.good, s.bad]);
  const marks = useMemo(() => marksOf(happened.events, data?.start ?? 0, data?.end ?? 0), [happened.events, data?.start, data?.end]);
  const format = useMemo(() => (v: number) => formatValue(v, s.unit), [s.unit]);
  const reason = site.reasons.find((r) => r.signal === s.name);
  const error = condition.error ?? query.error;
  const lost = s.known && s.score !== null && s.score < 1;
  return (
    <>
      <header className="page-head">
        <div className="stack" style={{ gap: 6 }}>
          <h1 className="row wrap">
            <Shape colour={!s.known ? "grey" : s.score === 0 ? "red" : lost ? "orange" : "green"} size={18} />
            <span className="mono">{s.name}</span>
            {s.critical && <span className="chip">critical</span>}
          </h1>
          <p>
            {s.known ? <b>{format(s.value ?? 0)}</b> : <b>{!s.applies ? `does not apply: no ${s.pack} here` : s.error ? "its query fails" : "no data"}</b>}
            <span className="muted">
              {" "}
              at <Link href={sitePath(site)}>{site.name}</Link> · {dimensionName[s.dimension]} · good at {format(s.good)}, bad at {format(s.bad)} · weight {s.weight === 0 ? "0, shown only" : formatValue(s.weight)}
              {s.source && <> · {s.source}</>}
            </span>
          </p>
          {reason && <p className="muted">{reason.text}</p>}
        </div>
        <RangePicker range={range} onChange={(r) => navigate(signalPath(site, s.name, r.id), { replace: true })} />
      </header>
      {s.error && s.applies && <div className="note bad slim">{s.error}</div>}
      <section className="card" aria-label="Chart">
        <header>
          <h2>Last {range.label}</h2>
          <MarkPicker kinds={kinds} onToggle={toggle} />
        </header>
        <div className="body stack">
          {error && <ProblemNote slim error={error} doing={data ? "refresh the chart; it is older" : "read the signal's history"} onRetry={() => void (condition.error ? condition.refetch() : query.refetch())} />}
          {!error && !data && <Skeleton height={280} />}
          {data && lines.length === 0 && (
            <p className="muted">
              {s.sparse ? `There are no samples in this time. Series of this signal exist only while something is wrong, so that is good.` : !s.applies ? `There are no samples: what it measures is not at this site.` : `There are no samples in this time. Look further back, or at what its exporter (${s.source || "unknown"}) sends.`}
            </p>
          )}
          {data && lines.length > 0 && <Chart axis lines={lines} bands={bands} marks={marks} start={data.start} end={data.end} height={300} format={format} bytes={s.unit === "bytes"} label={`${s.name} of ${site.name} over the last ${range.label}, good at ${format(s.good)}, bad at ${format(s.bad)}`} />}
          {data && (
            <p className="muted small">
              <BetweenNote range={range} known={between.data !== undefined} error={between.error} /> Green: good, at full score. Orange: between. Red: bad, no points.
            </p>
          )}
        </div>
      </section>
      <MarkedEvents events={happened.events} error={happened.error} more={happened.more} />
      <section className="card" aria-label="Query">
        <header>
          <h2>Query</h2>
          {condition.data && <Link href={exploreHref({ tenant: site.tenant, query: condition.data.value, range: range.id })}>Open in Metrics</Link>}
        </header>
        <div className="body">
          <pre className="query mono" tabIndex={0}>{condition.data?.query ?? (s.query || DASH)}</pre>
        </div>
      </section>
    </>
  );
}
