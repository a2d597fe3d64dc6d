import { useMemo, useState } from "react";
import { Link, useSearch } from "wouter";
import { Problem } from "../api/client";
import { usePolicy } from "../api/policy-queries";
import type { HealthPolicyDetail } from "../api/types";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { plural } from "../lib/format";
import { type Edits, policyPath, quantity, selection, sitesOfPolicy } from "../lib/policy";
import { formatAbsolute, parseTime } from "../lib/time";
import { useAddress } from "../components/virtual-picker";
import { PolicyPreview } from "../panels/policy-preview";
import { PolicySignals } from "../panels/policy-signals";

/** A health policy: whom it selects, its thresholds and queries, and what an edit of them would change. */
export function PolicyPage({ name }: { name: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const { data, error, isPending, refetch } = usePolicy(tenant, name);
  useTitle(`Health policy ${name}`);
  const shipped = data?.policy.tenant === "";
  return (
    <div className="page stack">
      <div>
        <p className="crumb">
          <Link href="/policies">← Health policies</Link>
        </p>
        <h1>{shipped ? "Shipped health policy" : name}</h1>
      </div>
      {isPending && <Skeleton height={28} count={12} />}
      {error && !data && <Missing error={error} name={name} onRetry={() => void refetch()} />}
      {error && data && <ProblemNote slim error={error} doing="refresh the policy; this is older" onRetry={() => void refetch()} />}
      {data && <Loaded detail={data} />}
    </div>
  );
}

function Missing({ error, name, onRetry }: { error: unknown; name: string; onRetry: () => void }) {
  if (!(error instanceof Problem) || (error.status !== 404 && error.status !== 409)) return <ProblemNote error={error} doing="load the policy" onRetry={onRetry} />;
  return (
    <div className="card">
      <Empty title={error.status === 409 ? `Several tenants have a policy ${name}` : `There is no health policy ${name}`}>
        {error.status === 409 ? (
          <ul className="row wrap">
            {error.tenants.map((tenant) => (
              <li key={tenant}>
                <Link href={policyPath({ tenant, name })}>{tenant}</Link>
              </li>
            ))}
          </ul>
        ) : (
          <p>It may have been deleted, or belong to a tenant that you may not read.</p>
        )}
        <Link href="/policies" className="button">
          All policies
        </Link>
      </Empty>
    </div>
  );
}

function Loaded({ detail }: { detail: HealthPolicyDetail }) {
  const { policy, spec } = detail;
  const preview = new URLSearchParams(useSearch()).get("preview") ?? "";
  const address = useAddress();
  const [typed, setTyped] = useState<Edits>({});
  const edits = preview ? typed : undefined;
  const failing = useMemo(() => policy.signals.filter((s) => s.error).length, [policy]);
  return (
    <>
      {policy.error && <ProblemNote error={policy.error} doing="use the policy as it stands; the last valid one stays in force" />}
      <section className="card">
        <header>
          <h2>Where it counts</h2>
          <span className="row small">
            {policy.shadow && <span className="chip">in shadow</span>}
            {failing > 0 && <span className="chip warn">{plural(failing, "query fails", "queries fail")}</span>}
          </span>
        </header>
        <dl className="body policy-facts">
          <Fact name="Tenant">{policy.tenant || "all: it applies where no other policy does"}</Fact>
          {policy.tenant && <Fact name="Selects">{selection(spec.siteSelector)}</Fact>}
          <Fact name={policy.shadow ? "Evaluated beside the one in force at" : "In force at"}>
            {policy.shadow ? plural(policy.sites, "site") : <Link href={sitesOfPolicy(policy)}>{plural(policy.sites, "site")}</Link>}
          </Fact>
          {policy.tenant && <Fact name="Priority">{spec.priority ?? 0}: of the policies that select a site the highest is in force</Fact>}
          <Fact name="Patience">
            a worse colour takes {plural(spec.evaluations ?? 2, "evaluation")} that agree, a better one {spec.recoveryEvaluations ?? 4}
          </Fact>
          <Fact name="Dimensions">
            {Object.keys(spec.weights ?? {}).length > 0 ? `weights ${Object.entries(spec.weights!).map(([k, v]) => `${k} ${quantity(v)}`).join(", ")}; ` : "equal weights; "}
            the worst one alone makes {Math.round(100 * quantity(spec.worstShare ?? "0.5"))}% of the score
          </Fact>
        </dl>
        {policy.shadow && (
          <div className="body small" data-would-change={policy.wouldChange}>
            <p>
              It counts for nothing. In force, it would change the colour of {policy.wouldChange} of {plural(policy.sites, "site")}
              {policy.examples.length > 0 ? ", such as:" : "."}
            </p>
            <ul>
              {policy.examples.map((x) => (
                <li key={x}>{x}</li>
              ))}
            </ul>
          </div>
        )}
      </section>
      {(spec.overrides ?? []).length > 0 && <Overrides spec={spec} />}
      <PolicyPreview detail={detail} edits={edits} tenant={preview}
        onTenant={(t) => {
          if (!t) setTyped({});
          address({ preview: t });
        }}
      />
      <PolicySignals detail={detail} edits={edits} onEdit={setTyped} />
    </>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Overrides({ spec }: { spec: HealthPolicyDetail["spec"] }) {
  const now = Date.now();
  return (
    <section className="card">
      <header>
        <h2>Overrides</h2>
      </header>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Overrides">
        <table className="stacks">
          <thead>
            <tr>
              <th scope="col">Reason</th>
              <th scope="col">Where</th>
              <th scope="col">Signals</th>
              <th scope="col">Until</th>
            </tr>
          </thead>
          <tbody>
            {(spec.overrides ?? []).map((o, i) => {
              const until = parseTime(o.until);
              return (
                <tr key={i} data-override={i}>
                  <td className="vs-name">{o.reason}</td>
                  <td data-label="Where">{[...(o.sites ?? []), ...(o.virtualSites ?? [])].join(", ") || "nowhere"}</td>
                  <td data-label="Signals">{o.signals.map((s) => `${s.name}: ${s.ignore ? "ignored" : [s.good && `good ${s.good}`, s.bad && `bad ${s.bad}`].filter(Boolean).join(", ")}`).join("; ")}</td>
                  <td className="vs-bar nowrap" data-label="Until">
                    {until === undefined ? o.until : formatAbsolute(until)}
                    {until !== undefined && until < now && <span className="chip"> over</span>}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
