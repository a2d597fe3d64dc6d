import { useMemo } from "react";
import { useRollouts, useRolloutSites } from "../api/rollout-queries";
import type { SiteFields } from "../api/types";
import { formatCount } from "../lib/format";
import { columnTitle } from "../lib/inventory";
import { parseRolloutKey, rolloutKey, stepName, STEPS } from "../lib/rollouts";
import { siteKey } from "../lib/site";
import type { Spot } from "../map/markers";
import type { Paint } from "../map/paint";
import type { Overlay } from "../map/spots";

const NUMBERS = ["score", "connectivity", "reliability", "security", "performance", "cpuUsed", "memoryUsed", "diskUsed", "alerts"];
const ROLLOUT = "rollout:";
const ACTIVE = { tenant: "", q: "", state: "active", phase: "" };

/** By what the map is coloured: health, a number, a version, a label, or the step of a rollout that runs. */
export function PaintSelect({ by, known, onChange }: { by: string; known: SiteFields | undefined; onChange: (by: string) => void }) {
  const running = useRollouts(ACTIVE).data?.pages.flatMap((p) => p.rollouts) ?? [];
  const versions = ["version", ...(known?.versions.filter((v) => v.key !== "agent").map((v) => `version.${v.key}`) ?? [])];
  const rollouts = running.map((r) => ({ id: ROLLOUT + rolloutKey(r), name: r.name }));
  const labels = known?.labels.map((l) => `label.${l.key}`) ?? [];
  const offered = [...NUMBERS, ...versions, ...labels, "phase", "region", ...rollouts.map((r) => r.id)];
  const option = (c: string) => (
    <option key={c} value={c}>
      {columnTitle(c)}
    </option>
  );
  return (
    <select className={by ? "select set fleet-by" : "select fleet-by"} aria-label="Colour by" value={by} onChange={(e) => onChange(e.target.value)}>
      <option value="">Colour by health</option>
      {by && !offered.includes(by) && option(by)}
      <optgroup label="Numbers">{NUMBERS.map(option)}</optgroup>
      <optgroup label="Versions">{versions.map(option)}</optgroup>
      {rollouts.length > 0 && (
        <optgroup label="Rollouts under way">
          {rollouts.map((r) => (
            <option key={r.id} value={r.id}>
              Step of {r.name}
            </option>
          ))}
        </optgroup>
      )}
      <optgroup label="Others">{["phase", "region", ...labels].map(option)}</optgroup>
    </select>
  );
}

const NONE = { tenant: "", namespace: "", name: "" };

/** Where the sites are in the rollout that the map is coloured by; undefined if it is by something else. */
export function useStepsOverlay(by: string): Overlay | undefined {
  const of = by.startsWith(ROLLOUT) ? parseRolloutKey(by.slice(ROLLOUT.length)) : undefined;
  const sites = useRolloutSites(of ?? NONE, false, of !== undefined).data;
  const key = of ? rolloutKey(of) : "";
  return useMemo(() => {
    const r = key ? parseRolloutKey(key) : undefined;
    if (!r) return undefined;
    return { of: `Step of ${r.name}`, texts: STEPS.map((s) => stepName[s]), at: new Map((sites ?? []).map((s) => [siteKey({ tenant: r.tenant, name: s.site }), STEPS.indexOf(s.step)])) };
  }, [key, sites]);
}

/** What the colours mean, and how many sites are of each. */
export function PaintKey({ paint, spots }: { paint: Paint; spots: readonly Spot[] }) {
  const counts = useMemo(() => {
    const n = new Array<number>(paint.kinds.length).fill(0);
    for (const s of spots) n[s.kind ?? 0]!++;
    return n;
  }, [paint, spots]);
  return (
    <ul className="paint-key" aria-label={`Colours by ${paint.of}, on the map`}>
      {paint.kinds.map((k, i) => (
        <li key={k.label} className={counts[i] === 0 ? "zero" : undefined}>
          <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden>
            <circle cx="6" cy="6" r="5" fill={k.colour} />
          </svg>
          {k.label} <b>{formatCount(counts[i]!)}</b>
        </li>
      ))}
    </ul>
  );
}
