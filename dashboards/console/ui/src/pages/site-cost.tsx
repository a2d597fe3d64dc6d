import { Link, useSearch } from "wouter";
import { useCostNames, useSiteCost } from "../api/cost-queries";
import type { CostNames } from "../api/types";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { COST_COLUMNS } from "../lib/cost";
import { DASH, formatCount, formatPercent } from "../lib/format";
import { sitePath } from "../lib/site";
import { useTenantInAddress } from "../lib/use-whole-address";
import { Missing } from "./cost";
import { Failed } from "./site";

/** What a site takes of the regionals, which metrics it is, and which fields of policies keep them. */
export function SiteCostPage({ name }: { name: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const names = useCostNames({ tenant, name });
  const known = names.data?.tenant ?? tenant;
  const cost = useSiteCost({ tenant: known, name });
  useTitle(`Cost of ${name}`);
  const row = cost.data?.row;
  useTenantInAddress(names.data);
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={known ? sitePath({ tenant: known, name }) : `/sites/${encodeURIComponent(name)}`}>← {name}</Link>
      </p>
      {names.error && !names.data ? (
        <Failed error={names.error} name={name} page="/cost" onRetry={() => void names.refetch()} />
      ) : (
        <>
          <div>
            <h1>Cost of {name}</h1>
            <p className="muted">
              Rates are means over the last minutes; processor time and memory are estimates. <Link href="/cost">Compare with other sites</Link>
            </p>
          </div>
          {names.error && <ProblemNote slim error={names.error} doing="refresh the metrics; these are older" onRetry={() => void names.refetch()} />}
          {cost.error && <ProblemNote slim error={cost.error} doing={row ? "refresh the figures; these are older" : "load the figures"} onRetry={() => void cost.refetch()} />}
          {names.data && names.data.missingRegions.length > 0 && <Missing page={names.data} />}
          {row ? (
            <dl className="figures">
              {COST_COLUMNS.map((c) => (
                <div key={c.sort}>
                  <dt title={c.title}>{c.text}</dt>
                  <dd>{c.value(row.use)}</dd>
                </div>
              ))}
            </dl>
          ) : (
            !cost.error && <Skeleton height={56} />
          )}
          <section className="card" aria-label="Metrics with the most series">
            <header>
              <h2>Metrics with the most series</h2>
              {names.data?.sampled && <span className="muted small">estimates, from a part of the series</span>}
            </header>
            {names.isPending && (
              <div className="body">
                <Skeleton height={24} count={6} />
              </div>
            )}
            {names.data && (names.data.names.length > 0 ? <Names page={names.data} /> : <NoSeries />)}
          </section>
          <p className="muted small">
            A metric is dropped by taking it out of every field that keeps it. <code>spec.dropSeries</code> of a CollectionPolicy drops only a part of its series;{" "}
            <code>spec.dropLabels</code> with <code>spec.aggregations</code> makes fewer of them.
          </p>
        </>
      )}
    </div>
  );
}

function NoSeries() {
  return (
    <Empty title="No series">
      <p>No regional holds a series of this site. They come with its first push, and are dropped within a few hours of the last.</p>
    </Empty>
  );
}

function Names({ page }: { page: CostNames }) {
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of metrics">
      <table className="stacks">
        <thead>
          <tr>
            <th scope="col">Metric</th>
            <th scope="col" className="num">
              Series
            </th>
            <th scope="col" className="num">
              Share
            </th>
            <th scope="col">Kept by</th>
          </tr>
        </thead>
        <tbody>
          {page.names.map((n) => (
            <tr key={n.name} data-metric={n.name}>
              <th scope="row" className="vs-name mono metric-name">
                {n.name}
              </th>
              <td className="num" data-label="Series">
                {formatCount(n.series)}
              </td>
              <td className="num" data-label="Share">
                {page.series > 0 ? formatPercent((100 * n.series) / page.series) : DASH}
              </td>
              <td data-label="Kept by" className="kept-by">
                {n.keptBy.length === 0 && <span className="muted">no collection policy: pushed by something else, or made by a rule</span>}
                {n.keptBy.map((k) => (
                  <div key={`${k.policy} ${k.field}`}>
                    {k.policy}: <code>{k.field}</code> {k.value && <code>{k.value}</code>}
                  </div>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
