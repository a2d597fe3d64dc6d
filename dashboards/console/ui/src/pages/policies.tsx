import { Link } from "wouter";
import { usePolicies } from "../api/queries";
import type { HealthPolicy } from "../api/types";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { dimensionName, DIMENSIONS } from "../lib/colour";
import { formatCount, formatValue, plural } from "../lib/format";
import { policyPath } from "../lib/policy";

/** Whether every signal of every policy can be asked at all: one failing query blinds the fleet to a fault. */
export function PoliciesPage() {
  const { data, error, isPending, refetch } = usePolicies();
  useTitle("Health policies");
  return (
    <div className="page stack">
      <div>
        <h1>Health policies</h1>
        <p className="muted">
          The signals that scores are made of, and how their queries did in the last evaluation. A policy&apos;s page has its thresholds, overrides and queries, and
          shows what an edit would change before it is made.
        </p>
      </div>
      {error && <ProblemNote error={error} doing={data ? "refresh the policies; these are older" : "load the policies"} onRetry={() => void refetch()} />}
      {isPending && <Skeleton height={28} count={10} />}
      {data?.length === 0 && (
        <div className="card">
          <Empty title="No health policy is in effect">
            <p>Without one no site has a score. Every tenant normally starts with a policy named default.</p>
            <Link href="/" className="button">
              Go to the fleet
            </Link>
          </Empty>
        </div>
      )}
      {data?.map((p) => <Policy key={`${p.tenant}/${p.name}`} policy={p} />)}
    </div>
  );
}

function Policy({ policy: p }: { policy: HealthPolicy }) {
  const name = p.tenant ? `${p.tenant}/${p.name}` : "Shipped policy, for sites that no other selects";
  const failing = p.signals.filter((s) => s.error).length;
  return (
    <section className="card">
      <header>
        <h2>
          <Link href={policyPath(p)}>{name}</Link>
        </h2>
        <span className="row small">
          {p.shadow && <span className="chip">in shadow</span>}
          {failing > 0 && <span className="chip warn">{plural(failing, "query fails", "queries fail")}</span>}
          <span className="muted">{plural(p.sites, "site")}</span>
        </span>
      </header>
      {p.error && (
        <p className="body fault" role="alert">
          {p.error}
        </p>
      )}
      {p.shadow && (
        <div className="body small" data-would-change={p.wouldChange}>
          <p>
            It counts for nothing. In force, it would change the colour of {formatCount(p.wouldChange)} of {plural(p.sites, "site")}
            {p.examples.length > 0 ? ", such as:" : "."}
          </p>
          <ul>
            {p.examples.map((x) => (
              <li key={x}>{x}</li>
            ))}
          </ul>
        </div>
      )}
      <div className="table-wrap" tabIndex={0} role="region" aria-label={`Signals of ${name}`}>
        <table className="signals stacks">
          <thead>
            <tr>
              <th scope="col">Signal</th>
              <th scope="col" className="num">
                Sites with a value
              </th>
              <th scope="col" className="num">
                Query time
              </th>
              <th scope="col">State</th>
            </tr>
          </thead>
          {DIMENSIONS.map((d) => {
            const signals = p.signals.filter((s) => s.dimension === d);
            return (
              signals.length > 0 && (
                <tbody key={d}>
                  <tr className="group">
                    <th scope="rowgroup" colSpan={4}>
                      {dimensionName[d]}
                    </th>
                  </tr>
                  {signals.map((s) => (
                    <tr key={s.name}>
                      <td className="mono vs-name">{s.name}</td>
                      <td className="num" data-label="Sites with a value">
                        {formatCount(s.sitesKnown)} <span className="muted">of {formatCount(p.sites)}</span>
                      </td>
                      <td className="num" data-label="Query time">{formatValue(s.queryMillis / 1000, "seconds")}</td>
                      <td data-label="State">{s.error ? <span className="error">{s.error}</span> : s.sitesKnown === 0 ? <span className="muted">no site has this metric</span> : "answered"}</td>
                    </tr>
                  ))}
                </tbody>
              )
            );
          })}
        </table>
      </div>
    </section>
  );
}
