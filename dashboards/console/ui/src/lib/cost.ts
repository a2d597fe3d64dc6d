import type { CostBy, CostSort, RegionalRoom, Use } from "../api/types";
import { formatCount, formatValue } from "./format";

export interface CostColumn {
  sort: CostSort;
  text: string;
  title: string;
  value: (u: Use) => string;
}

const cores = (v: number): string => (v > 0 && v < 0.0001 ? "< 0.0001" : v.toFixed(4));

export const COST_COLUMNS: readonly CostColumn[] = [
  { sort: "series", text: "Series", title: "Series in the memory of the regionals", value: (u) => formatCount(u.series) },
  { sort: "samples", text: "Samples/s", title: "Samples taken a second", value: (u) => formatValue(u.samplesPerSecond) },
  { sort: "bytes", text: "Bytes/s", title: "Bytes of pushes on the wire a second, compressed", value: (u) => formatValue(u.wireBytesPerSecond, "bytes") },
  { sort: "refused", text: "429/s", title: "Pushes a second that were told to come back later", value: (u) => formatValue(u.refusedPerSecond) },
  { sort: "lines", text: "Log lines/s", title: "Log lines taken a second", value: (u) => formatValue(u.logLinesPerSecond) },
  { sort: "logBytes", text: "Log bytes/s", title: "Bytes of log lines a second, uncompressed", value: (u) => formatValue(u.logBytesPerSecond, "bytes") },
  { sort: "cpu", text: "Cores", title: "An estimate of the share of the regionals' processor time", value: (u) => cores(u.cpuCores) },
  { sort: "memory", text: "Memory", title: "An estimate of the share of the regionals' memory", value: (u) => formatValue(u.memoryBytes, "bytes") },
];

export const COST_BY: readonly { by: CostBy; text: string }[] = [
  { by: "site", text: "Sites" },
  { by: "virtualsite", text: "Virtual sites" },
  { by: "tenant", text: "Tenants" },
];

/** An estimate has two digits, no more. */
export function roughly(n: number): number {
  let unit = 1;
  while (n / unit >= 100) unit *= 10;
  return Math.floor(n / unit) * unit;
}

export const resourceName: Record<string, string> = { memory: "Memory", cpu: "Processor", disk: "Disk", series: "Series" };

export const resourceUnit: Record<string, string> = { memory: "bytes", disk: "bytes", cpu: "cores", series: "" };

/** How many more sites a regional carries, in a sentence. */
export function headroomText({ headroom: h }: Pick<RegionalRoom, "headroom">): string {
  if (h.sites === 0) return "No sites yet";
  const like = h.sites === 1 ? "like its one" : `like its ${formatCount(h.sites)}`;
  if (h.moreSites === null || h.moreSites === undefined) return `How many more sites ${like} it carries is not known yet`;
  if (h.moreSites === 0) return `No more sites ${like}`;
  return `About ${formatCount(roughly(h.moreSites))} more ${h.moreSites === 1 ? "site" : "sites"} ${like}`;
}
