import { useState } from "react";
import { Link } from "wouter";
import { useWorkloadPods } from "../api/vk8s-queries";
import type { Pod, VirtualKubernetesDetail } from "../api/types";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { DeletePodDialog } from "../dialogs/delete-pod";
import { DASH, formatCount, plural } from "../lib/format";
import { sitePath } from "../lib/site";
import { podLogPath, podState, type WorkloadRef } from "../lib/workloads";

interface Props {
  of: WorkloadRef;
  /** Only those on this site; "": all. */
  site: string;
  total: number;
  rights: VirtualKubernetesDetail["rights"] | undefined;
  onSite: (site: string) => void;
}

/** The pods of a workload, of all sites or of one. */
export function WorkloadPods({ of, site, total, rights, onSite }: Props) {
  const list = useWorkloadPods(of, site, true);
  const [doomed, setDoomed] = useState<Pod | null>(null);
  const [done, setDone] = useState("");
  const pods = list.data?.pages.flatMap((p) => p.pods) ?? [];
  return (
    <section className="card" aria-label="Pods">
      <header>
        <h2>Pods</h2>
        {site && (
          <button type="button" className="button" onClick={() => onSite("")}>
            Only on {site} <span aria-hidden>×</span>
            <span className="visually-hidden"> remove this filter</span>
          </button>
        )}
      </header>
      {list.error && (
        <div className="body">
          <ProblemNote slim error={list.error} doing={list.data ? "refresh the pods; these are older" : "list the pods"} onRetry={() => void list.refetch()} />
        </div>
      )}
      {list.isPending && (
        <div className="body">
          <Skeleton height={24} count={4} />
        </div>
      )}
      {list.data && pods.length === 0 && (
        <Empty title="No pods">
          <p>{total === 0 ? "This kind has none, or none was made yet." : site ? `No pod of it was seen on ${site} so far.` : "No site has told of a pod so far."}</p>
        </Empty>
      )}
      {pods.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of pods">
          <table className="stacks pods">
            <thead>
              <tr>
                <th scope="col">Pod</th>
                <th scope="col">Site</th>
                <th scope="col">Node</th>
                <th scope="col">State</th>
                <th scope="col" className="num">
                  Restarts
                </th>
                <th scope="col" className="num">
                  Age
                </th>
                <th scope="col">
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {pods.map((p) => (
                <Row key={p.name} pod={p} of={of} rights={rights} onDelete={setDoomed} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {pods.length > 0 && (
        <div className="body row wrap spread">
          <p className="muted small" role="status">
            {done || (list.hasNextPage ? `The first ${formatCount(pods.length)}` : plural(pods.length, "pod"))}
          </p>
          {list.hasNextPage && (
            <button type="button" className="button" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
              {list.isFetchingNextPage ? "Loading…" : "Load more"}
            </button>
          )}
        </div>
      )}
      {doomed && (
        <DeletePodDialog pod={doomed} virtual={of.virtual} onClose={() => setDoomed(null)}
          onDone={() => {
            setDone(`${doomed.name} is being deleted`);
            setDoomed(null);
          }}
        />
      )}
    </section>
  );
}

function Row({ pod: p, of, rights, onDelete }: { pod: Pod; of: WorkloadRef; rights: Props["rights"]; onDelete: (p: Pod) => void }) {
  const state = podState(p);
  return (
    <tr data-pod={p.name}>
      <th scope="row" className="vs-name mono">
        {p.name}
      </th>
      <td data-label="Site">
        <Link href={sitePath({ tenant: of.virtual.tenant, name: p.site })}>{p.site}</Link>
      </td>
      <td data-label="Node">{p.node || DASH}</td>
      <td data-label="State" title={p.message || p.reason || p.phase}>
        <span className={state.bad ? "bad-text" : undefined}>{state.text}</span>
        {p.phase === "Running" && p.ready < 1 && !p.reason && <span className="muted"> · not ready</span>}
      </td>
      <td className="num" data-label="Restarts">
        {formatCount(p.restarts)}
      </td>
      <td className="num" data-label="Age">
        <Ago time={p.createdAt} />
      </td>
      <td className="pod-tools">
        {rights?.readLogs !== false && p.node !== "" && (
          <Link className="button" href={podLogPath(of, p.name, p.containers[0] ?? "")} aria-label={`Log of ${p.name}`}>
            Log
          </Link>
        )}
        {rights?.deletePods && (
          <button type="button" className="button danger" aria-label={`Delete ${p.name}`} disabled={p.deleting} onClick={() => onDelete(p)}>
            Delete
          </button>
        )}
      </td>
    </tr>
  );
}
