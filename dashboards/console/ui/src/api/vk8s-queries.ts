import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { siteKey, type SiteRef } from "../lib/site";
import { isMoving, type VirtualRef, virtualKey, type WorkloadRef, workloadKey } from "../lib/workloads";
import { api, withParams } from "./client";
import { keys } from "./keys";
import { Link, type LinkState } from "./link";
import type { ApplyRequest, ApplyResult, PodList, SiteWorkloads, VirtualKubernetes, VirtualKubernetesDetail, Workload, WorkloadDetail, WorkloadObject } from "./types";

// Polled: the control plane holds the sums ready, and a list has no sites, so that asking
// again costs less than a stream of every site's every change.
const LIST_MS = 5000;
const MOVING_MS = 3000;
const STILL_MS = 10_000;
const POD_PAGE = 50;

const pathOf = (v: VirtualRef) => `/api/v1/vk8s/${encodeURIComponent(v.namespace)}/${encodeURIComponent(v.name)}`;
const itemOf = (w: WorkloadRef) => `${pathOf(w.virtual)}/workloads/${encodeURIComponent(w.kind)}/${encodeURIComponent(w.name)}`;

export function useVirtualKubernetes() {
  return useQuery({
    queryKey: keys.virtualKubernetes,
    queryFn: ({ signal }) => api<{ virtualKubernetes: VirtualKubernetes[] }>("GET", "/api/v1/vk8s", { signal }).then((r) => r.virtualKubernetes),
    refetchInterval: 15_000,
  });
}

/** Where its kubeconfig can be downloaded. */
export const kubeconfigHref = (v: VirtualRef): string => withParams(`${pathOf(v)}/kubeconfig`, { tenant: v.tenant });

/** One, with what the user may do there. */
export function useVirtual(v: VirtualRef | undefined) {
  return useQuery({
    queryKey: keys.vk8sOne(v ? virtualKey(v) : ""),
    enabled: v !== undefined,
    queryFn: ({ signal }) => api<VirtualKubernetesDetail>("GET", pathOf(v!), { params: { tenant: v!.tenant }, signal }),
    refetchInterval: 30_000,
  });
}

export function useWorkloads(v: VirtualRef | undefined) {
  return useQuery({
    queryKey: keys.workloads(v ? virtualKey(v) : ""),
    enabled: v !== undefined,
    queryFn: ({ signal }) => api<{ items: Workload[] }>("GET", `${pathOf(v!)}/workloads`, { params: { tenant: v!.tenant }, signal }).then((r) => r.items),
    refetchInterval: LIST_MS,
  });
}

/** One workload with its sites, often while something moves. */
export function useWorkload(w: WorkloadRef) {
  return useQuery({
    queryKey: keys.workload(workloadKey(w)),
    queryFn: ({ signal }) => api<WorkloadDetail>("GET", itemOf(w), { params: { tenant: w.virtual.tenant }, signal }),
    refetchInterval: (q) => (q.state.data && !isMoving(q.state.data.counts) ? STILL_MS : MOVING_MS),
  });
}

export function useWorkloadObject(w: WorkloadRef) {
  return useQuery({
    queryKey: keys.workloadObject(workloadKey(w)),
    queryFn: ({ signal }) => api<WorkloadObject>("GET", `${itemOf(w)}/object`, { params: { tenant: w.virtual.tenant }, signal }),
    refetchInterval: 30_000,
  });
}

export function useWorkloadPods(w: WorkloadRef, site: string, enabled: boolean) {
  return useInfiniteQuery({
    queryKey: keys.workloadPods(workloadKey(w), site),
    enabled,
    queryFn: ({ signal, pageParam }) => api<PodList>("GET", `${itemOf(w)}/pods`, { params: { tenant: w.virtual.tenant, site, limit: POD_PAGE, cursor: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (p: PodList) => p.nextCursor || undefined,
    refetchInterval: LIST_MS,
  });
}

export function useSiteWorkloads(s: SiteRef) {
  return useQuery({
    queryKey: keys.siteWorkloads(siteKey(s)),
    queryFn: ({ signal }) => api<SiteWorkloads>("GET", `/api/v1/sites/${encodeURIComponent(s.name)}/workloads`, { params: { tenant: s.tenant }, signal }),
    refetchInterval: 15_000,
  });
}

export function useDeletePod(v: VirtualRef) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (pod: string) => api<void>("DELETE", `${pathOf(v)}/pods/${encodeURIComponent(pod)}`, { params: { tenant: v.tenant } }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.vk8s }),
  });
}

export function useApply(v: VirtualRef) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: ApplyRequest) => api<ApplyResult>("POST", `${pathOf(v)}/apply`, { params: { tenant: v.tenant }, body }),
    onSuccess: (r) => (r.applied ? client.invalidateQueries({ queryKey: keys.vk8s }) : undefined),
  });
}

export interface PodLine {
  time: string;
  text: string;
  /** Counts the lines of this page. */
  n: number;
}

export interface PodLog {
  lines: readonly PodLine[];
  state: LinkState | { kind: "ended" };
  paused: boolean;
  waiting: number;
  setPaused: (paused: boolean) => void;
  retry: () => void;
}

/** As many lines as are kept. */
export const POD_LINES = 5000;

export function usePodLog(v: VirtualRef, pod: string, container: string, previous: boolean): PodLog {
  const url = withParams(`${pathOf(v)}/pods/${encodeURIComponent(pod)}/log`, { tenant: v.tenant, container, previous: previous ? "true" : undefined });
  const [shown, setShown] = useState<readonly PodLine[]>([]);
  const [held, setHeld] = useState<readonly PodLine[]>([]);
  const [state, setState] = useState<PodLog["state"]>({ kind: "connecting" });
  const [paused, setPausedState] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const isPaused = useRef(false);
  useEffect(() => {
    setShown([]);
    setHeld([]);
    setState({ kind: "connecting" });
    isPaused.current = false;
    setPausedState(false);
    let n = 0;
    let ended = false;
    const link = new Link({
      url,
      resumes: true,
      onState: (s) => {
        if (!ended) setState(s);
      },
      onOpen: () => {},
      onEvent: (type, data) => {
        if (type === "end") {
          ended = true;
          setState({ kind: "ended" });
          link.stop();
        } else if (type === "lines") {
          const fresh = ((data as { lines?: Omit<PodLine, "n">[] } | null)?.lines ?? []).map((l) => ({ ...l, n: n++ })).reverse();
          (isPaused.current ? setHeld : setShown)((have) => [...fresh, ...have].slice(0, POD_LINES));
        }
      },
    });
    link.start();
    return () => {
      ended = true;
      link.stop();
    };
  }, [url, attempt]);
  const setPaused = (p: boolean) => {
    isPaused.current = p;
    setPausedState(p);
    if (p) return;
    setShown((have) => [...held, ...have].slice(0, POD_LINES));
    setHeld([]);
  };
  return { lines: shown, state, paused, waiting: held.length, setPaused, retry: () => setAttempt((a) => a + 1) };
}
