import { useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { type PodLog, POD_LINES, usePodLog, useWorkloadPods } from "../api/vk8s-queries";
import type { LogRecord } from "../api/types";
import { LogList } from "../components/log-list";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote } from "../components/states";
import { useAddress } from "../components/virtual-picker";
import { formatCount, plural } from "../lib/format";
import { logsHref } from "../lib/log-filter";
import { addClause } from "../lib/log-query";
import { workloadPath, type WorkloadRef } from "../lib/workloads";

interface Props {
  namespace: string;
  vk8s: string;
  kind: string;
  name: string;
  pod: string;
}

/** A pod's log as its site has it, followed. */
export function PodLogPage({ namespace, vk8s, kind, name, pod }: Props) {
  const q = new URLSearchParams(useSearch());
  const tenant = q.get("tenant") ?? "";
  const of = useMemo<WorkloadRef>(() => ({ virtual: { tenant, namespace, name: vk8s }, kind, name }), [tenant, namespace, vk8s, kind, name]);
  const known = useWorkloadPods(of, "", true).data?.pages.flatMap((p) => p.pods).find((p) => p.name === pod);
  const container = q.get("container") || known?.containers[0] || "";
  const previous = q.get("previous") === "true";
  const log = usePodLog(of.virtual, pod, container, previous);
  const address = useAddress();
  const [, navigate] = useLocation();
  useTitle(`Log of ${pod}`);
  const lines = useMemo<LogRecord[]>(
    () =>
      log.lines.map((l) => ({ timestamp: l.time, tenant, site: known?.site ?? "", region: "", node: known?.node ?? "", namespace, pod, container, unit: "", severity: "", message: l.text, id: String(l.n) })),
    [log.lines, tenant, known?.site, known?.node, namespace, pod, container],
  );
  return (
    <div className="logs pod-log">
      <div className="log-filters">
        <div className="row wrap spread">
          <div>
            <p className="crumb">
              <Link href={workloadPath(of)}>← {name}</Link>
            </p>
            <h1 className="mono">{pod}</h1>
            <p className="muted small">
              {known ? `${known.site}, ${known.node}` : "Log of a pod"} · straight from its site.{" "}
              <Link href={logsHref({ tenant, query: `pod:"${pod}"`, ...(known ? { site: known.site } : {}) })}>Search what was collected of it</Link>
            </p>
          </div>
          <div className="row wrap">
            {known && known.containers.length > 1 && (
              <select className="select" style={{ width: 160 }} aria-label="Container" value={container} onChange={(e) => address({ container: e.target.value })}>
                {known.containers.map((c) => (
                  <option key={c}>{c}</option>
                ))}
              </select>
            )}
            <button type="button" className={previous ? "button on" : "button"} aria-pressed={previous} title="What the container wrote before it was started anew" onClick={() => address({ previous: previous ? "" : "true" })}>
              Previous run
            </button>
          </div>
        </div>
      </div>
      <div className="log-notes">{log.state.kind === "reconnecting" && log.state.error && <ProblemNote slim error={log.state.error} doing="follow the log; it is tried again" />}</div>
      <div />
      <Bar log={log} />
      {lines.length > 0 ? (
        <LogList plain id={`${pod} ${container} ${previous}`} lines={lines} onFilter={(field, value, not) => navigate(logsHref({ tenant, query: addClause("", field, value, not) }))} onAway={(away) => log.setPaused(away)}>
          <p className="log-end muted small">{lines.length >= POD_LINES ? `The newest ${formatCount(POD_LINES)} lines are kept here.` : "The log is shown from its last 1,000 lines on."}</p>
        </LogList>
      ) : (
        <div className="log-none">
          <Nothing log={log} previous={previous} />
        </div>
      )}
    </div>
  );
}

function Nothing({ log, previous }: { log: PodLog; previous: boolean }) {
  if (log.state.kind === "failed") return <ProblemNote error={log.state.error} doing="follow the log" onRetry={log.retry} />;
  if (log.state.kind === "ended") {
    return (
      <Empty title={previous ? "The previous run wrote nothing" : "The container has ended and wrote nothing"}>
        <button type="button" className="button" onClick={log.retry}>
          Look again
        </button>
      </Empty>
    );
  }
  return (
    <Empty title={log.state.kind === "live" ? "No lines so far" : "Connecting to the site"}>
      <p>Lines are shown as the container writes them.</p>
    </Empty>
  );
}

function Bar({ log }: { log: PodLog }) {
  const text = log.paused
    ? `Paused; ${plural(log.waiting, "line waits", "lines wait")}`
    : { connecting: "Connecting", live: "Following", reconnecting: "Connection lost, trying again", held: "Paused", failed: "Stopped", ended: "The container has ended" }[log.state.kind];
  const kind = log.paused ? "paused" : log.state.kind === "live" ? "live" : log.state.kind === "failed" || log.state.kind === "ended" ? "stale" : "reconnecting";
  return (
    <div className="log-bar">
      <span role="status" className="small">
        {plural(log.lines.length, "line")}
      </span>
      <span className={`live is-${kind}`} data-follow={log.paused ? "paused" : log.state.kind}>
        <i aria-hidden />
        <span role="status">{text}</span>
      </span>
      <span className="row" style={{ marginLeft: "auto" }}>
        {log.state.kind === "ended" || log.state.kind === "failed" ? (
          <button type="button" className="button" onClick={log.retry}>
            Read again
          </button>
        ) : (
          <button type="button" className="button"
            onClick={() => {
              if (log.paused) document.querySelector(".log-list")?.scrollTo({ top: 0 });
              log.setPaused(!log.paused);
            }}
          >
            {log.paused ? (log.waiting > 0 ? `Show ${plural(log.waiting, "new line")}` : "Go on") : "Pause"}
          </button>
        )}
      </span>
    </div>
  );
}
