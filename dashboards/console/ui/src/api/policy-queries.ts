import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api } from "./client";
import { keys } from "./keys";
import { PATIENCE } from "./late";
import type { HealthPolicyDetail, HealthPolicySpec, HealthReplay, HealthTrial } from "./types";

/** A policy as it was written; tenant is "" for the shipped one, or where the name is unique. */
export function usePolicy(tenant: string, name: string) {
  return useQuery({
    queryKey: keys.policy(tenant, name),
    queryFn: ({ signal }) => api<HealthPolicyDetail>("GET", `/api/v1/health/policies/${encodeURIComponent(name)}`, { params: { tenant: tenant || undefined }, signal }),
    refetchInterval: 30_000,
  });
}

/** A policy that is not in force. */
export interface Candidate {
  tenant: string;
  name: string;
  spec: HealthPolicySpec;
}

const body = (c: Candidate) => ({ apiVersion: "muster.dev/v1alpha1", kind: "HealthPolicy", metadata: { name: c.name }, spec: c.spec });

/** Requests of which a new one, stop, or leaving the page ends what is under way. */
function useLatest() {
  const stopper = useRef<AbortController>(undefined);
  const stop = () => stopper.current?.abort();
  useEffect(() => () => stopper.current?.abort(), []);
  const next = (): AbortSignal => {
    stop();
    return (stopper.current = new AbortController()).signal;
  };
  return { next, stop };
}

/**
 * What a candidate would make of the readings of this moment: what came within two seconds, and all of it when those that are late
 * have answered or may take no longer.
 */
export function useTrial() {
  const [early, setEarly] = useState<HealthTrial>();
  const { next } = useLatest();
  const run = useMutation({
    mutationFn: async (c: Candidate) => {
      const signal = next();
      setEarly(undefined);
      const ask = (patience: string) => api<HealthTrial>("POST", "/api/v1/health/try", { params: { tenant: c.tenant, patience }, body: body(c), signal });
      const first = await ask(PATIENCE);
      if (!first.missingRegions.some((r) => r.late)) return first;
      setEarly(first);
      return ask("");
    },
  });
  return { ...run, data: run.data ?? early };
}

export interface Replayed {
  sites: HealthReplay["sites"];
  done: number;
  total: number;
}

/** What a candidate would have made of the last day: some sites at a time, until all are done or somebody stops it. */
export function useReplay() {
  const [progress, setProgress] = useState<Replayed>();
  const { next, stop } = useLatest();
  const run = useMutation({
    mutationFn: async (c: Candidate) => {
      const signal = next();
      setProgress(undefined);
      const sites: HealthReplay["sites"] = [];
      for (let cursor: string | undefined; !signal.aborted; ) {
        const r: HealthReplay = await api<HealthReplay>("POST", "/api/v1/health/replay", { params: { tenant: c.tenant, since: "24h", cursor }, body: body(c), signal });
        sites.push(...r.sites);
        setProgress({ sites: [...sites], done: r.done, total: r.total });
        if (!r.nextCursor || r.nextCursor === cursor) return;
        cursor = r.nextCursor;
      }
    },
  });
  return { ...run, progress, stop };
}
