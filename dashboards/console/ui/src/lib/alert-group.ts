import type { AlertGroup } from "../api/types";
import { tellingLabels } from "./matchers";

/** What tells a group from all others. */
export const groupKey = (g: AlertGroup): string => `${g.tenant}/${g.receiver}/${JSON.stringify(g.labels)}`;

/** A group's name: the values it is grouped by. */
export function nameOf(g: AlertGroup): string {
  const labels = Object.entries(g.labels).sort(([a], [b]) => (a < b ? -1 : 1));
  const plain = (k: string, v: string) => (k === "virtual_sites" ? v.split("|").filter(Boolean).join(", ") : v); // it stands between bars, for matchers
  return labels.map(([k, v]) => (k === "alertname" ? v : `${k}=${plain(k, v)}`)).join(", ") || (g.receiver ? "all alerts of the route" : "no route");
}

/** How many of its alerts somebody is told of. */
export const firing = (g: AlertGroup): number => g.counts.critical + g.counts.warning + g.counts.info;

/** The labels that a silence of a group wants: those it is grouped by and, unless it is cut, what else all its alerts are about. */
export function commonLabels(g: AlertGroup): Record<string, string> {
  if (g.alerts.length < g.total) return tellingLabels({}, g.labels);
  const [first, ...rest] = g.alerts;
  return tellingLabels(Object.fromEntries(Object.entries(first?.labels ?? {}).filter(([k, v]) => k !== "tenant" && rest.every((a) => a.labels[k] === v))), g.labels);
}
