import type { Rights } from "../api/types";

/** Rights that pages ask for before they offer what needs them, as RBAC has them. */
export type Right = "patch sites.muster.dev" | "create silences.muster.dev" | "delete silences.muster.dev" | "create alertrules.muster.dev" | "list sites.muster.dev";

/** A tenant "" is any: it is enough to have the right in one. */
export function lackOf(rights: Rights | undefined, need: Right, tenants: Iterable<string>): string {
  const held = rights?.rights.find((r) => r.right === need);
  if (!held || held.all) return "";
  const missing = [...new Set(tenants)].filter((t) => (t === "" ? held.tenants.length === 0 : !held.tenants.includes(t))).sort();
  if (missing.length === 0) return "";
  const where = missing[0] === "" ? "in any tenant" : `in ${missing.slice(0, 3).map((t) => `${t}-system`).join(", ")}${missing.length > 3 ? ` and ${missing.length - 3} more` : ""}`;
  return `You lack the right to ${need} ${where}`;
}

/** The tenant of Muster's own telemetry, which is in no list of tenants. */
export const PLATFORM = "muster";

/** Tenants whose metrics may be asked for: those of the session, and the platform's own for who may read them. */
export function metricTenants(rights: Rights | undefined, tenants: readonly string[]): readonly string[] {
  const held = rights?.rights.find((r) => r.right === "list sites.muster.dev");
  return held && (held.all || held.tenants.includes(PLATFORM)) ? [...tenants, PLATFORM] : tenants;
}
