// What runs where: states, reasons in words, and how lists are filtered and sorted.

import type { Pod, Workload, WorkloadCounts, WorkloadSite, WorkloadState } from "../api/types";

/** One virtual Kubernetes. */
export interface VirtualRef {
  tenant: string;
  namespace: string;
  name: string;
}

export interface WorkloadRef {
  virtual: VirtualRef;
  /** KIND.GROUP, KIND alone of the core group. */
  kind: string;
  name: string;
}

export const virtualRef = (v: VirtualRef): string => `${v.namespace}/${v.name}`;
export const virtualKey = (v: VirtualRef): string => `${v.tenant}/${virtualRef(v)}`;
export const workloadKey = (w: WorkloadRef): string => `${virtualKey(w.virtual)}/${w.kind}/${w.name}`;
export const kindOf = (w: Pick<Workload, "group" | "kind">): string => (w.group ? `${w.kind}.${w.group}` : w.kind);

const enc = encodeURIComponent;
const tenantQuery = (v: VirtualRef) => `?tenant=${enc(v.tenant)}`;

export const workloadsPath = (v: VirtualRef): string => `/workloads?${new URLSearchParams({ tenant: v.tenant, in: virtualRef(v) }).toString()}`;
export const deployPath = (v: VirtualRef): string => `/workloads/deploy?${new URLSearchParams({ tenant: v.tenant, in: virtualRef(v) }).toString()}`;
export const workloadPath = (w: WorkloadRef): string => `/workloads/${enc(w.virtual.namespace)}/${enc(w.virtual.name)}/${enc(w.kind)}/${enc(w.name)}${tenantQuery(w.virtual)}`;
/** Which container has to be said of a pod that has several. */
export const podLogPath = (w: WorkloadRef, pod: string, container: string): string =>
  `/workloads/${enc(w.virtual.namespace)}/${enc(w.virtual.name)}/${enc(w.kind)}/${enc(w.name)}/pods/${enc(pod)}/log${tenantQuery(w.virtual)}${container ? `&container=${enc(container)}` : ""}`;

/** In the order in which people read them. */
export const STATES: readonly WorkloadState[] = ["Ready", "Progressing", "Waiting", "RolledBack", "Failed"];

export const stateName: Record<WorkloadState, string> = { Ready: "Ready", Progressing: "Progressing", Waiting: "Waiting", RolledBack: "Rolled back", Failed: "Failed" };

export const stateMeaning: Record<WorkloadState, string> = {
  Ready: "applied, and ready",
  Progressing: "applied, not ready yet",
  Waiting: "not applied yet",
  RolledBack: "the last good one is in effect again",
  Failed: "could not be applied, or does not become ready",
};

const COUNT: Record<WorkloadState, keyof WorkloadCounts> = { Ready: "ready", Progressing: "progressing", Waiting: "waiting", RolledBack: "rolledBack", Failed: "failed" };

export const countOf = (c: WorkloadCounts, s: WorkloadState): number => c[COUNT[s]];

/** Every count that is not zero, in words. */
export function countsText(c: WorkloadCounts): string {
  const parts = STATES.filter((s) => countOf(c, s) > 0).map((s) => `${countOf(c, s)} ${stateName[s].toLowerCase()}`);
  if (c.offline > 0) parts.push(`${c.offline} of them offline`);
  return parts.join(", ") || "no sites";
}

/** Whether something is on its way, so that it is worth looking again soon. */
export const isMoving = (c: WorkloadCounts): boolean => c.progressing + c.waiting > 0;

const REASONS: Record<string, string> = {
  ImagePullBackOff: "image can't be pulled",
  ErrImagePull: "image can't be pulled",
  ErrImageNeverPull: "image is not on the node",
  InvalidImageName: "image's name is wrong",
  RegistryUnavailable: "image registry can't be reached",
  OOMKilled: "out of memory",
  CrashLoopBackOff: "keeps crashing",
  Error: "ended with an error",
  ContainerCannotRun: "can't be started",
  RunContainerError: "can't be started",
  CreateContainerError: "can't be started",
  CreateContainerConfigError: "a ConfigMap or Secret is missing",
  ContainerCreating: "starting",
  PodInitializing: "starting",
  Evicted: "evicted by its node",
  NodeLost: "its node is lost",
  DeadlineExceeded: "took longer than it may",
  ProgressDeadlineExceeded: "not ready in time",
  BackoffLimitExceeded: "failed too often",
  ReplicaFailure: "pods can't be made",
  FailedMount: "a volume can't be mounted",
  Unhealthy: "fails its health check",
  UnknownKind: "the site doesn't know this kind",
  ApiServerUnreachable: "the site's API server can't be reached",
  QuotaExceeded: "quota is used up",
  Forbidden: "not allowed on the site",
  Invalid: "refused by the site",
  Suspended: "suspended",
  Fetching: "being fetched",
  Prepull: "images are being pulled",
  Replacing: "being replaced",
  Removing: "being removed",
  Bundle: "waits for its bundle",
  Namespace: "waits for its namespace",
};

/** What a scheduler lacks, such as "CPU and memory", or "". */
function lacking(message: string): string {
  const found = new Set<string>();
  for (const m of message.matchAll(/Insufficient ([a-z0-9./-]+)/g)) found.add(m[1] === "cpu" ? "CPU" : m[1]!.replace(/[.,]$/, ""));
  return [...found].join(" and ");
}

/** A reason as people say it; one that is not known is taken apart into words. */
export function reasonText(reason: string, message = ""): string {
  if (reason === "Unschedulable") {
    const what = lacking(message);
    if (what) return `pending for want of ${what}`;
    if (/taint/i.test(message)) return "pending: no node takes it";
    if (/volume|PersistentVolumeClaim/i.test(message)) return "pending for want of a volume";
    return "pending: no node fits";
  }
  return REASONS[reason] ?? reason.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
}

/** The first reason of a workload, in one line. */
export function headlineOf(w: Pick<Workload, "reasons" | "counts">): string {
  const r = w.reasons[0];
  if (!r) return "";
  const text = reasonText(r.reason, r.message);
  return r.sites < w.counts.sites || w.reasons.length > 1 ? `${text} on ${r.sites}` : text;
}

/** An image without its registry, which says nothing in a narrow table. */
export function shortImage(image: string): string {
  const i = image.indexOf("/");
  const host = image.slice(0, Math.max(i, 0));
  return /[.:]|^localhost$/.test(host) ? image.slice(i + 1) : image;
}

export type WorkloadSort = "name" | "sites" | "trouble" | "pods" | "age";
export const WORKLOAD_SORTS: readonly WorkloadSort[] = ["trouble", "name", "sites", "pods", "age"];

export interface WorkloadFilter {
  q: string;
  /** Only those with sites in it. */
  state: WorkloadState | "Offline" | "Drifted" | "";
  kind: string;
  sort: WorkloadSort;
}

export const inState = (c: WorkloadCounts, s: WorkloadFilter["state"]): boolean => (s === "" ? true : s === "Offline" ? c.offline > 0 : s === "Drifted" ? c.drifted > 0 : countOf(c, s) > 0);

const text = (w: Workload) => `${w.kind} ${w.name} ${(w.images ?? []).join(" ")} ${w.virtualSites.join(" ")} ${w.reasons.map((r) => `${r.reason} ${reasonText(r.reason, r.message)}`).join(" ")}`.toLowerCase();

/** How much is wrong: failed sites count most. */
const trouble = (c: WorkloadCounts) => c.failed * 1e6 + c.rolledBack * 1e3 + c.progressing + c.waiting;

const byName = (a: Workload, b: Workload) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.kind < b.kind ? -1 : 1);

const ORDERS: Record<WorkloadSort, (a: Workload, b: Workload) => number> = {
  name: byName,
  sites: (a, b) => b.counts.sites - a.counts.sites,
  trouble: (a, b) => trouble(b.counts) - trouble(a.counts),
  pods: (a, b) => b.pods.desired - a.pods.desired,
  age: (a, b) => ((a.created ?? "") < (b.created ?? "") ? 1 : (a.created ?? "") > (b.created ?? "") ? -1 : 0),
};

/** The workloads that fit, in order; equal ones by name. */
export function arrange(all: readonly Workload[], f: WorkloadFilter): Workload[] {
  const words = f.q.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((w) => (!f.kind || w.kind === f.kind) && inState(w.counts, f.state) && words.every((x) => text(w).includes(x))).sort((a, b) => ORDERS[f.sort](a, b) || byName(a, b));
}

export function parseWorkloadFilter(search: string): WorkloadFilter {
  const q = new URLSearchParams(search);
  const state = q.get("state") ?? "";
  return {
    q: q.get("q") ?? "",
    state: [...STATES, "Offline", "Drifted"].includes(state) ? (state as WorkloadFilter["state"]) : "",
    kind: q.get("kind") ?? "",
    sort: WORKLOAD_SORTS.find((s) => s === q.get("sort")) ?? "trouble",
  };
}

const RANK: Record<WorkloadState, number> = { Failed: 0, RolledBack: 1, Progressing: 2, Waiting: 3, Ready: 4 };

/** The worst first, and of equal ones those that are offline. */
export const compareWorst = (a: WorkloadSite, b: WorkloadSite): number => RANK[a.state] - RANK[b.state] || Number(a.online) - Number(b.online);

export interface SiteFilter {
  q: string;
  state: WorkloadFilter["state"];
}

/** The sites of a workload that fit, the worst first. */
export function arrangeSites(all: readonly WorkloadSite[], f: SiteFilter): WorkloadSite[] {
  const words = f.q.toLowerCase().split(/\s+/).filter(Boolean);
  return all
    .filter((s) => {
      const is = f.state === "" || (f.state === "Offline" ? !s.online : f.state === "Drifted" ? s.drifted === true : s.state === f.state);
      const t = `${s.site} ${s.reason ?? ""} ${s.reason ? reasonText(s.reason, s.message) : ""}`.toLowerCase();
      return is && words.every((w) => t.includes(w));
    })
    .sort((a, b) => compareWorst(a, b) || (a.site < b.site ? -1 : 1));
}

/** A pod's state in words, and whether something is wrong with it. */
export function podState(p: Pod): { text: string; bad: boolean } {
  if (p.deleting) return { text: "being deleted", bad: false };
  if (p.reason) return { text: reasonText(p.reason, p.message), bad: !["ContainerCreating", "PodInitializing", "Completed"].includes(p.reason) };
  return { text: p.phase === "Succeeded" ? "done" : p.phase.toLowerCase(), bad: p.phase === "Failed" };
}

/** The objects among those applied that have a page with progress: the first of a kind that makes pods, else the first. */
export function toShow<T extends { kind: string }>(objects: readonly T[]): T | undefined {
  const runs = ["Deployment", "StatefulSet", "DaemonSet", "VirtualMachine", "Job", "CronJob"];
  return objects.find((o) => runs.includes(o.kind)) ?? objects[0];
}

/** A virtual site as a site's own list names it: NAME alone is one in the same namespace. */
const inNamespace = (ref: string, namespace: string): string => (ref.includes("/") ? ref : `${namespace}/${ref}`);

/** The virtual sites that objects go to: the chosen one, else what each says, else the default. */
export function reachOf(v: { namespace: string; defaultVirtualSite: string }, chosen: string, objects?: readonly { virtualSites: readonly string[] }[]): string[] {
  const refs = chosen ? [chosen] : (objects ?? [{ virtualSites: [] }]).flatMap((o) => (o.virtualSites.length > 0 ? o.virtualSites : [v.defaultVirtualSite]));
  return [...new Set(refs.map((r) => inNamespace(r, v.namespace)))];
}

export const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: hello
spec:
  replicas: 1
  selector:
    matchLabels: {app: hello}
  template:
    metadata:
      labels: {app: hello}
    spec:
      containers:
        - name: hello
          image: registry.example/hello:1.0.0
          ports: [{containerPort: 8080}]
`;
