import { useCallback, useMemo } from "react";
import { Link, useSearch } from "wouter";
import { kubeconfigHref, useWorkloads, useVirtual } from "../api/vk8s-queries";
import type { VirtualKubernetes, Workload } from "../api/types";
import { useTyped } from "../components/filters";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { type Chosen, useAddress, useChosenVirtual, VirtualPicker } from "../components/virtual-picker";
import { StateBar, StateCounts } from "../components/workload-bits";
import { DASH, formatCount, plural } from "../lib/format";
import { arrange, deployPath, headlineOf, inState, kindOf, parseWorkloadFilter, shortImage, stateName, STATES, virtualRef, type WorkloadFilter, workloadPath, type WorkloadSort } from "../lib/workloads";

/** What runs where, of one virtual Kubernetes. */
export function WorkloadsPage() {
  const chosen = useChosenVirtual();
  const { query, one } = chosen;
  useTitle("Workloads");
  return (
    <div className="page stack">
      <div className="page-head wide">
        <div>
          <h1>Workloads</h1>
          <p className="muted">
            {one ? (
              <>
                Of the virtual Kubernetes {virtualRef(one)}: {plural(one.sites, "site")}, {formatCount(one.online)} online. What names no virtual site goes to {one.defaultVirtualSite}.
              </>
            ) : (
              "What runs on which sites, applied once with plain kubectl."
            )}
          </p>
        </div>
        <div className="row wrap">
          <VirtualPicker chosen={chosen} />
          {one && <KubeconfigLink of={one} />}
          {one && <DeployButton of={one} />}
        </div>
      </div>
      {query.error && <ProblemNote error={query.error} doing={query.data ? "refresh the virtual Kubernetes; these are older" : "load the virtual Kubernetes"} onRetry={() => void query.refetch()} />}
      {query.isPending && <Waiting />}
      {query.data && !one && <NoVirtual chosen={chosen} />}
      {one && <List key={`${one.tenant}/${virtualRef(one)}`} of={one} />}
    </div>
  );
}

function Waiting() {
  return (
    <div className="card">
      <div className="body">
        <Skeleton height={32} count={6} />
      </div>
    </div>
  );
}

function DeployButton({ of }: { of: VirtualKubernetes }) {
  const rights = useVirtual(of).data?.rights;
  if (rights && !rights.deploy) return <span className="chip" title="You have no right to create deployments.apps in this namespace">read only</span>;
  return (
    <Link className="button primary" href={deployPath(of)}>
      Deploy…
    </Link>
  );
}

function KubeconfigLink({ of }: { of: VirtualKubernetes }) {
  return (
    <a className="button" href={kubeconfigHref(of)} download={`${of.tenant}-${of.namespace}-${of.name}.kubeconfig`} title="For kubectl and Helm. It has no credentials: its first line says how it gets yours">
      Kubeconfig
    </a>
  );
}

function NoVirtual({ chosen }: { chosen: Chosen }) {
  const tenant = chosen.tenant || "TENANT";
  return (
    <div className="card">
      <Empty title="No virtual Kubernetes yet">
        <p>
          A virtual Kubernetes makes one cluster of many sites: what is applied to it once runs on every site of a virtual site. Make one in a namespace of a tenant, and get a
          kubeconfig for it. If there is one already, you may not read it: whoever administers its namespace can let you <code>get virtualkubernetes.muster.dev</code> there.
        </p>
        <Command text={`kubectl apply -f - <<END\napiVersion: muster.dev/v1alpha1\nkind: VirtualKubernetes\nmetadata: {namespace: ${tenant}-shop, name: vk8s}\nspec: {defaultVirtualSite: shared/all-eu}\nEND`} />
        <Command text="muster vk8s kubeconfig shop/vk8s > kubeconfig" />
      </Empty>
    </div>
  );
}

function NoWorkloads({ of }: { of: VirtualKubernetes }) {
  return (
    <div className="card">
      <Empty title="Nothing is deployed yet">
        <p>Apply objects as to any cluster, with kubectl, Helm or the form here. They go to {of.defaultVirtualSite} unless they name other virtual sites.</p>
        <Command text={`muster vk8s kubeconfig ${virtualRef(of)} > kubeconfig`} />
        <Command text="kubectl --kubeconfig kubeconfig apply -f app.yaml" />
      </Empty>
    </div>
  );
}

function List({ of }: { of: VirtualKubernetes }) {
  const search = useSearch();
  const filter = useMemo(() => parseWorkloadFilter(search), [search]);
  const list = useWorkloads(of);
  const address = useAddress();
  const shown = useMemo(() => arrange(list.data ?? [], filter), [list.data, filter]);
  return (
    <>
      {of.fault && (
        <div className="note slim warn" role="status">
          <strong>It is not ready</strong>
          <span>{of.fault}</span>
        </div>
      )}
      {list.error && <ProblemNote error={list.error} doing={list.data ? "refresh the workloads; these are older" : "load the workloads"} onRetry={() => void list.refetch()} />}
      {list.isPending && <Waiting />}
      {list.data?.length === 0 && <NoWorkloads of={of} />}
      {list.data && list.data.length > 0 && (
        <>
          <Filters all={list.data} filter={filter} onChange={address} />
          {shown.length === 0 ? (
            <div className="card">
              <Empty title="No workload matches">
                <button type="button" className="button" onClick={() => address({ q: "", state: "", kind: "" })}>
                  Clear filters
                </button>
              </Empty>
            </div>
          ) : (
            <Table of={of} rows={shown} filter={filter} onSort={(sort) => address({ sort: sort === "trouble" ? "" : sort })} />
          )}
          <p className="muted small" role="status">
            {shown.length < list.data.length ? `${formatCount(shown.length)} of ${plural(list.data.length, "object")}` : plural(list.data.length, "object")}
          </p>
        </>
      )}
    </>
  );
}

function Filters({ all, filter, onChange }: { all: readonly Workload[]; filter: WorkloadFilter; onChange: (c: Record<string, string>) => void }) {
  const [q, setQ] = useTyped(
    filter.q,
    useCallback((q: string) => onChange({ q }), [onChange]),
  );
  const kinds = [...new Set(all.map((w) => w.kind))].sort();
  const states = [...STATES, "Offline", "Drifted"] as const;
  return (
    <form className="row wrap cost-filters" role="search" aria-label="Search and filter the workloads" onSubmit={(e) => e.preventDefault()}>
      <input className="input" type="search" aria-label="Search workloads" placeholder="Name, image, reason…" maxLength={200} value={q} onChange={(e) => setQ(e.target.value)} />
      <select className={filter.state ? "select set" : "select"} aria-label="State" value={filter.state} onChange={(e) => onChange({ state: e.target.value })}>
        <option value="">Any state</option>
        {states.map((s) => (
          <option key={s} value={s}>
            {s in stateName ? stateName[s as keyof typeof stateName] : s} somewhere ({all.filter((w) => inState(w.counts, s)).length})
          </option>
        ))}
      </select>
      {kinds.length > 1 && (
        <select className={filter.kind ? "select set" : "select"} aria-label="Kind" value={filter.kind} onChange={(e) => onChange({ kind: e.target.value })}>
          <option value="">Any kind</option>
          {kinds.map((k) => (
            <option key={k}>{k}</option>
          ))}
        </select>
      )}
    </form>
  );
}

function Table({ of, rows, filter, onSort }: { of: VirtualKubernetes; rows: readonly Workload[]; filter: WorkloadFilter; onSort: (s: WorkloadSort) => void }) {
  const head = (sort: WorkloadSort, text: string, title: string, num = false) => (
    <th scope="col" className={num ? "num" : undefined} aria-sort={filter.sort !== sort ? "none" : sort === "name" ? "ascending" : "descending"}>
      <button type="button" className="sort" title={title} onClick={() => onSort(sort)}>
        {text}
        <span aria-hidden>{filter.sort === sort ? " ↓" : ""}</span>
      </button>
    </th>
  );
  return (
    <div className="card table-wrap" tabIndex={0} role="region" aria-label="Table of workloads">
      <table className="stacks workloads">
        <thead>
          <tr>
            {head("name", "Name", "Sort by name")}
            <th scope="col">Image</th>
            <th scope="col">Virtual sites</th>
            {head("sites", "Sites", "Sort by the number of sites", true)}
            {head("trouble", "By state", "Sort the most failed first")}
            {head("pods", "Pods ready", "Sort by the number of pods", true)}
            {head("age", "Age", "Sort the newest first", true)}
          </tr>
        </thead>
        <tbody>
          {rows.map((w) => (
            <tr key={`${kindOf(w)}/${w.name}`} data-workload={`${w.kind}/${w.name}`}>
              <th scope="row" className="vs-name">
                <Link href={workloadPath({ virtual: of, kind: kindOf(w), name: w.name })}>{w.name}</Link>
                <div className="muted small">{w.kind}</div>
              </th>
              <td className={(w.images ?? []).length > 0 ? "images" : "images none"} data-label="Image">
                {(w.images ?? []).length === 0 ? DASH : w.images!.map((i) => <div key={i} className="mono small" title={i}>{shortImage(i)}</div>)}
              </td>
              <td className="where" data-label="Virtual sites">{w.virtualSites.length === 0 ? DASH : w.virtualSites.map((v) => <div key={v}>{v}</div>)}</td>
              <td className="num" data-label="Sites">
                {formatCount(w.counts.sites)}
              </td>
              <td className="vs-bar">
                <StateBar counts={w.counts} />
                <div className="vs-counts">
                  <StateCounts counts={w.counts} />
                </div>
                {w.reasons.length > 0 && (
                  <div className="small why" title={w.reasons[0]!.message}>
                    {headlineOf(w)}
                  </div>
                )}
              </td>
              <td className="num" data-label="Pods ready">
                {w.pods.desired === 0 ? DASH : `${formatCount(w.pods.ready)}/${formatCount(w.pods.desired)}`}
              </td>
              <td className="num" data-label="Age">
                <Ago time={w.created} none={DASH} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
