import { useCallback } from "react";
import { useLocation, useSearch } from "wouter";
import { useVirtualKubernetes } from "../api/vk8s-queries";
import type { VirtualKubernetes } from "../api/types";
import { useWholeAddress } from "../lib/use-whole-address";
import { virtualKey, virtualRef } from "../lib/workloads";
import { TenantSelect } from "./filters";

export interface Chosen {
  query: ReturnType<typeof useVirtualKubernetes>;
  all: readonly VirtualKubernetes[];
  /** Those of the chosen tenant. */
  offered: readonly VirtualKubernetes[];
  one: VirtualKubernetes | undefined;
  tenant: string;
}

/** The virtual Kubernetes that the address names; else the first that works, which the address names from then on. */
export function useChosenVirtual(): Chosen {
  const query = useVirtualKubernetes();
  const q = new URLSearchParams(useSearch());
  const [path] = useLocation();
  const tenant = q.get("tenant") ?? "";
  const all = query.data ?? [];
  const offered = all.filter((v) => !tenant || v.tenant === tenant);
  const named = offered.find((v) => virtualRef(v) === q.get("in"));
  const one = named ?? offered.find((v) => v.objects > 0 && !v.fault) ?? offered[0];
  useWholeAddress(one ? `${path}?${changed(q, { tenant: one.tenant, in: virtualRef(one) })}` : path, one !== undefined && !(tenant && q.has("in")));
  return { query, all, offered, one, tenant };
}

/** Parameters with some of them changed; an empty one goes. */
function changed(q: URLSearchParams, change: Record<string, string>): string {
  const next = new URLSearchParams(q);
  for (const [k, v] of Object.entries(change)) if (v) next.set(k, v); else next.delete(k);
  return next.toString();
}

/** Changes parameters of the address; an empty one goes. */
export function useAddress(): (change: Record<string, string>) => void {
  const search = useSearch();
  const [path, navigate] = useLocation();
  return useCallback(
    (change) => {
      const s = changed(new URLSearchParams(search), change);
      navigate(s ? `${path}?${s}` : path, { replace: true });
    },
    [search, path, navigate],
  );
}

/** Which tenant, and which of its virtual Kubernetes; nothing where there is no choice. */
export function VirtualPicker({ chosen }: { chosen: Chosen }) {
  const address = useAddress();
  const tenants = [...new Set(chosen.all.map((v) => v.tenant))];
  const one = chosen.one;
  return (
    <>
      <TenantSelect one value={chosen.tenant} tenants={tenants} width={150} onChange={(tenant) => address({ tenant, in: "" })} />
      {one && chosen.offered.length > 1 && (
        <select className="select" style={{ width: 220 }} aria-label="Virtual Kubernetes" value={virtualKey(one)}
          onChange={(e) => {
            const v = chosen.offered.find((x) => virtualKey(x) === e.target.value);
            if (v) address({ tenant: v.tenant, in: virtualRef(v) });
          }}
        >
          {chosen.offered.map((v) => (
            <option key={virtualKey(v)} value={virtualKey(v)}>
              {virtualRef(v)}
              {tenants.length > 1 ? ` · ${v.tenant}` : ""}
            </option>
          ))}
        </select>
      )}
    </>
  );
}
