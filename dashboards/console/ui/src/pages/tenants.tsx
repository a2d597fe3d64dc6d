import { useTenants } from "../api/queries";
import type { QuotaUse, Tenant } from "../api/types";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { DASH, formatPercent, formatValue } from "../lib/format";

const QUOTAS: Record<QuotaUse["quota"], { name: string; unit: string }> = {
  sites: { name: "Sites", unit: "" },
  series: { name: "Series", unit: "" },
  logBytesPerDay: { name: "Logs today", unit: "bytes" },
  objects: { name: "Objects", unit: "" },
  objectBytes: { name: "Size of objects", unit: "bytes" },
};

/** From here on people should be told before something is refused. */
const NEAR = 0.8;

/** What every tenant uses of its quotas. */
export function TenantsPage() {
  const { data, error, isPending, refetch } = useTenants();
  useTitle("Tenants");
  return (
    <div className="page stack">
      <div>
        <h1>Tenants</h1>
        <p className="muted">
          What is used of each quota. What goes over it is refused, and the refusal says so. An administrator changes a quota with{" "}
          <code>kubectl edit tenant</code>.
        </p>
      </div>
      {error && <ProblemNote error={error} doing={data ? "refresh the tenants; these are older" : "load the tenants"} onRetry={() => void refetch()} />}
      {isPending && <Skeleton height={140} count={2} />}
      {data?.length === 0 && (
        <div className="card">
          <Empty title="There is no tenant that you may read">
            <p>An administrator can add you to one.</p>
          </Empty>
        </div>
      )}
      {data?.map((t) => <Quotas key={t.name} tenant={t} />)}
    </div>
  );
}

function Quotas({ tenant }: { tenant: Tenant }) {
  return (
    <section className="card" aria-label={tenant.name} data-tenant={tenant.name}>
      <header>
        <h2>{tenant.name}</h2>
      </header>
      {tenant.quotas.length === 0 ? (
        <p className="body muted">Nothing is counted yet. The first figures come within minutes of the first site.</p>
      ) : (
        <dl className="quotas">
          {tenant.quotas.map((q) => (
            <Quota key={q.quota} use={q} />
          ))}
        </dl>
      )}
    </section>
  );
}

function Quota({ use }: { use: QuotaUse }) {
  const { name, unit } = QUOTAS[use.quota] ?? { name: use.quota, unit: "" };
  const share = use.limit > 0 ? use.used / use.limit : null;
  const state = share === null || share < NEAR ? "" : share < 1 ? "near" : "full";
  return (
    <div className={`quota ${state}`}>
      <dt>{name}</dt>
      <dd>
        <span>
          <b>{formatValue(use.used, unit)}</b> of {use.limit > 0 ? formatValue(use.limit, unit) : "any number"}
        </span>
        <span className="muted">
          {share === null ? DASH : formatPercent(Math.floor(share * 100))}
          {state === "near" && ", nearly used up"}
          {state === "full" && ", used up"}
        </span>
        {share !== null && <meter min={0} max={1} value={Math.min(1, share)} low={NEAR} high={0.999} optimum={0} aria-label={`${name}: ${formatPercent(Math.floor(share * 100))} used`} />}
      </dd>
    </div>
  );
}
