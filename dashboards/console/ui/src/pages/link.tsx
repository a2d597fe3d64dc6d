import { useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useLink } from "../api/link-queries";
import { NO_POINTS, useBetween, useRange } from "../api/metric-queries";
import type { Link as SiteLink } from "../api/types";
import { BetweenNote } from "../components/between-note";
import { Chart } from "../components/chart";
import { RangePicker } from "../components/range-picker";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { APART } from "../lib/between";
import { exploreHref } from "../lib/explore";
import { formatScore } from "../lib/format";
import { type Range, rangeOf } from "../lib/history";
import { chartLines, chartsOf, COLUMNS, formatMillis, linkPath, type LinkChart, serviceChartsOf } from "../lib/links";
import { signalPath, sitePath } from "../lib/site";
import { useTenantInAddress } from "../lib/use-whole-address";

/** The link of one site: how it is, and what went over it in a time. */
export function LinkPage({ name }: { name: string }) {
  const search = new URLSearchParams(useSearch());
  const tenant = search.get("tenant") ?? "";
  const found = useLink({ tenant, name });
  useTitle(`Link of ${name}`);
  const links = found.data?.links ?? [];
  useTenantInAddress(links.length === 1 ? links[0] : undefined);
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href="/connectivity">← Connectivity</Link>
      </p>
      {found.isPending && (
        <>
          <h1>Link of {name}</h1>
          <Skeleton height={120} count={4} />
        </>
      )}
      {found.error && <ProblemNote slim={links.length > 0} error={found.error} doing={links.length > 0 ? "refresh the link; the figures are older" : "load the link"} onRetry={() => void found.refetch()} />}
      {found.data && links.length === 0 && (
        <div className="card">
          <Empty page title="There is no such site">
            <p>No site {name} is among those that you may read.</p>
            <Link href="/connectivity" className="button">
              All links
            </Link>
          </Empty>
        </div>
      )}
      {links.length > 1 && (
        <div className="card">
          <Empty page title={`Several tenants have a site ${name}`}>
            <ul className="row wrap">
              {links.map((l) => (
                <li key={l.tenant}>
                  <Link className="button" href={linkPath({ tenant: l.tenant, name })}>
                    {l.tenant}/{name}
                  </Link>
                </li>
              ))}
            </ul>
          </Empty>
        </div>
      )}
      {links.length === 1 && <Loaded link={links[0]!} range={rangeOf(search.get("range"))} />}
    </div>
  );
}

function Loaded({ link: l, range }: { link: SiteLink; range: Range }) {
  const [, navigate] = useLocation();
  const ref = { tenant: l.tenant, name: l.site };
  const charts = useMemo(() => chartsOf(l.site, l.window, range.step), [l.site, l.window, range.step]);
  const services = useMemo(() => serviceChartsOf(l.site, l.window, range.step), [l.site, l.window, range.step]);
  const served = useRange(l.tenant, services[0]!.query, range).data;
  return (
    <>
      <header className="page-head">
        <div className="stack" style={{ gap: 6 }}>
          <h1 className="row wrap">
            <Shape colour={l.colour} size={18} label />
            {l.site}
            <span aria-hidden className="muted">
              ↔
            </span>
            {l.regional || "no regional yet"}
          </h1>
          <p className="muted">
            Connectivity {formatScore(l.connectivity)} · {l.phase.toLowerCase()} · {l.region || "no region"} · <Link href={sitePath(ref)}>the site</Link> · <Link href={signalPath(ref, "uplink")}>its uplink over time</Link>
          </p>
          {l.reason && <p>{l.reason}</p>}
        </div>
        <RangePicker range={range} onChange={(r) => navigate(linkPath(ref, r.id), { replace: true })} />
      </header>
      <dl className="figures" aria-label="Now">
        {COLUMNS.map((c) => (
          <div key={c.sort} title={c.doc}>
            <dt>{c.title}</dt>
            <dd>{c.text(l)}</dd>
          </div>
        ))}
        <div title="How long the last TLS handshake took">
          <dt>Handshake</dt>
          <dd>{formatMillis(l.handshake)}</dd>
        </div>
      </dl>
      <p className="muted small">
        <BetweenNote range={range} known error={null} />
      </p>
      <div className="link-charts">
        {charts.map((c) => (
          <LinkChartCard key={c.id} chart={c} tenant={l.tenant} of={`${c.title} of ${l.site} over the last ${range.label}`} range={range} />
        ))}
      </div>
      <h2>Services of the site</h2>
      {served && (served.matrix.data?.result ?? []).length === 0 && (
        <p className="muted">
          No ingress or mesh of the site tells of requests. Envoy, Traefik, NGINX and Linkerd are read when their pods are annotated <code>prometheus.io/scrape: "true"</code>.
        </p>
      )}
      {served && (served.matrix.data?.result ?? []).length > 0 && (
        <div className="link-charts">
          {services.map((c) => (
            <LinkChartCard key={c.id} chart={c} tenant={l.tenant} of={`${c.title} of ${l.site} over the last ${range.label}`} range={range} />
          ))}
        </div>
      )}
    </>
  );
}

/** One chart of a link or of the site's services, with its query one step away. */
function LinkChartCard({ chart: c, tenant, of, range }: { chart: LinkChart; tenant: string; of: string; range: Range }) {
  const query = useRange(tenant, c.query, range);
  const data = query.data;
  const many = (data?.matrix.data?.result.length ?? 0) > APART;
  const between = useBetween(tenant, c.query, range, many ? NO_POINTS : query);
  const lines = useMemo(() => (data ? chartLines(c, data, range.step, between.data) : []), [data, between.data, c, range.step]);
  return (
    <section className="card" aria-label={c.title} data-chart={c.id}>
      <header>
        <h2>{c.title}</h2>
        <Link href={exploreHref({ tenant, query: c.query, range: range.id })} aria-label={`${c.title}: open in Metrics`}>
          Query
        </Link>
      </header>
      <div className="body stack">
        {query.error && <ProblemNote slim error={query.error} doing={data ? "refresh the chart; it is older" : "read its history"} onRetry={() => void query.refetch()} />}
        {!query.error && !data && <Skeleton height={150} />}
        {data && lines.length === 0 && <p className="muted">{c.none}</p>}
        {data && lines.length > 0 && (
          <>
            <Chart axis lines={lines} start={data.start} end={data.end} height={150} format={c.format} bytes={c.bytes ?? false} label={of} />
            {lines.some((x) => x.name !== c.title) && (
              <ul className="link-legend small">
                {lines.map((x, i) => (
                  <li key={x.name}>
                    <i aria-hidden style={{ background: `var(--line-${(i % 8) + 1})` }} />
                    {x.name}
                  </li>
                ))}
              </ul>
            )}
          </>
        )}
        <p className="muted small">
          {c.doc} {(many || between.error !== null) && <BetweenNote range={range} known={false} error={between.error} tooMany={many} />}
        </p>
      </div>
    </section>
  );
}
