import { useCallback, useMemo, useRef } from "react";
import { Link, useSearch } from "wouter";
import { Problem } from "../api/client";
import { useVirtual, useWorkload, useWorkloadObject } from "../api/vk8s-queries";
import type { WorkloadDetail } from "../api/types";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { useAddress } from "../components/virtual-picker";
import { StateBar, StateMark } from "../components/workload-bits";
import { DASH, formatCount, plural } from "../lib/format";
import { countOf, reasonText, stateName, STATES, virtualRef, type WorkloadRef, workloadsPath } from "../lib/workloads";
import { RolloutOfWorkload } from "../panels/rollout-notes";
import { WorkloadPods } from "../panels/workload-pods";
import { WorkloadSites } from "../panels/workload-sites";

interface Props {
  namespace: string;
  vk8s: string;
  kind: string;
  name: string;
}

/** One workload on all its sites. */
export function WorkloadPage({ namespace, vk8s, kind, name }: Props) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const ref = useMemo<WorkloadRef>(() => ({ virtual: { tenant, namespace, name: vk8s }, kind, name }), [tenant, namespace, vk8s, kind, name]);
  const query = useWorkload(ref);
  useTitle(name);
  const w = query.data;
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={workloadsPath(ref.virtual)}>← Workloads of {virtualRef(ref.virtual)}</Link>
      </p>
      {query.isPending && (
        <>
          <h1>{name}</h1>
          <Skeleton height={40} count={5} />
        </>
      )}
      {query.error && !w && <Failed error={query.error} of={ref} onRetry={() => void query.refetch()} />}
      {w && (
        <>
          {query.error && <ProblemNote slim error={query.error} doing="refresh this workload; the figures are older" onRetry={() => void query.refetch()} />}
          <Loaded workload={w} of={ref} />
        </>
      )}
    </div>
  );
}

function Failed({ error, of, onRetry }: { error: unknown; of: WorkloadRef; onRetry: () => void }) {
  if (error instanceof Problem && error.status === 404) {
    return (
      <div className="card">
        <Empty page title="There is no such workload">
          <p>It may have been deleted. {error.detail}</p>
          <Link href={workloadsPath(of.virtual)} className="button">
            All workloads
          </Link>
        </Empty>
      </div>
    );
  }
  return (
    <>
      <h1>{of.name}</h1>
      <ProblemNote error={error} doing="load the workload" onRetry={onRetry} />
    </>
  );
}

function Loaded({ workload: w, of }: { workload: WorkloadDetail; of: WorkloadRef }) {
  const site = new URLSearchParams(useSearch()).get("site") ?? "";
  const address = useAddress();
  const rights = useVirtual(of.virtual).data?.rights;
  const pods = useRef<HTMLDivElement>(null);
  const only = useCallback(
    (s: string) => {
      address({ site: s });
      if (s) pods.current?.scrollIntoView({ block: "start" });
    },
    [address],
  );
  const hasPods = w.pods.desired > 0 || ["CronJob", "Job", "DaemonSet"].includes(w.kind);
  return (
    <>
      <div>
        <h1>{w.name}</h1>
        <p className="muted">
          {w.kind}
          {(w.images ?? []).length > 0 && (
            <>
              {" · "}
              <span className="mono">{w.images!.join(", ")}</span>
            </>
          )}
          {" · "}
          {w.virtualSites.join(", ") || "no virtual site"}
          {" · made "}
          <Ago time={w.created} none={DASH} />
        </p>
      </div>
      <div className="card">
        <div className="body progress-card">
          <StateBar counts={w.counts} height={14} />
          <dl className="state-figures">
            {STATES.filter((s) => s === "Ready" || countOf(w.counts, s) > 0).map((s) => (
              <div key={s}>
                <dt>
                  <StateMark state={s} size={11} /> {stateName[s]}
                </dt>
                <dd>{formatCount(countOf(w.counts, s))}</dd>
              </div>
            ))}
            <Figure label="Sites" value={formatCount(w.counts.sites)} />
            {w.counts.offline > 0 && <Figure label="Offline" value={formatCount(w.counts.offline)} />}
            {w.counts.drifted > 0 && <Figure label="Drifted" value={formatCount(w.counts.drifted)} />}
            {w.pods.desired > 0 && <Figure label="Pods ready" value={`${formatCount(w.pods.ready)}/${formatCount(w.pods.desired)}`} />}
          </dl>
        </div>
      </div>
      <RolloutOfWorkload of={of} />
      {w.reasons.length > 0 && (
        <section className="card" aria-label="Reasons">
          <header>
            <h2>Why not everywhere</h2>
            <span className="muted small">that of most sites first</span>
          </header>
          <ul className="conditions">
            {w.reasons.map((r) => (
              <li key={r.reason} data-reason={r.reason}>
                <strong>{reasonText(r.reason, r.message)}</strong> on {plural(r.sites, "site")}, such as {r.example} <code className="muted">{r.reason}</code>
                {r.message && <div className="muted small">{r.message}</div>}
              </li>
            ))}
          </ul>
        </section>
      )}
      <WorkloadSites workload={w} tenant={of.virtual.tenant} onPods={only} />
      {hasPods && (
        <div ref={pods}>
          <WorkloadPods of={of} site={site} total={w.pods.desired} rights={rights} onSite={only} />
        </div>
      )}
      <ObjectCard of={of} />
    </>
  );
}

function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** The object as it stands at the centre. */
function ObjectCard({ of }: { of: WorkloadRef }) {
  const object = useWorkloadObject(of);
  const o = object.data;
  const annotations = Object.entries(o?.annotations ?? {}).sort();
  return (
    <section className="card" aria-label="Object">
      <header>
        <h2>Object</h2>
        <span className="muted small">as it was applied; read only</span>
      </header>
      <div className="body stack">
        {object.error && <ProblemNote slim error={object.error} doing="read the object" onRetry={() => void object.refetch()} />}
        {object.isPending && <Skeleton height={18} count={6} />}
        {annotations.length > 0 && (
          <dl className="kv" aria-label="Annotations">
            {annotations.map(([k, v]) => (
              <div key={k} className="contents">
                <dt>
                  <code>{k}</code>
                </dt>
                <dd>{v}</dd>
              </div>
            ))}
          </dl>
        )}
        {o && (
          <pre className="yaml" tabIndex={0} aria-label="YAML">
            {o.yaml}
          </pre>
        )}
      </div>
    </section>
  );
}
