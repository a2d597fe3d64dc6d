// Words and rules about how loaded sites are.

import type { SiteDistribution } from "../api/types";

interface Resource {
  /** As in: they use 75% of it. */
  of: string;
  rule: string;
  summary: string;
  /** PromQL for the percentage, one value a site: that of the shipped health policy. */
  expr: string;
}

const FILES = `fstype!~"tmpfs|ramfs|squashfs|erofs|iso9660|overlay|fuse.*"`;

const RESOURCES: Record<string, Resource> = {
  cpuUsed: {
    of: "their CPU", rule: "SiteCPUHigh", summary: "uses {{ $value | printf \"%.0f\" }}% of its CPU",
    expr: `100 * (1 - sum by (site) (rate(node_cpu_seconds_total{mode=~"idle|iowait"}[5m])) / (sum by (site) (rate(node_cpu_seconds_total[5m])) > 0))`,
  },
  memoryUsed: {
    of: "the memory of their fullest node", rule: "SiteMemoryHigh", summary: "uses {{ $value | printf \"%.0f\" }}% of the memory of a node",
    expr: `100 * (1 - min by (site) (node_memory_MemAvailable_bytes / (node_memory_MemTotal_bytes > 0)))`,
  },
  diskUsed: {
    of: "their fullest filesystem", rule: "SiteDiskHigh", summary: "has a filesystem that is {{ $value | printf \"%.0f\" }}% full",
    expr: `100 * max by (site) (1 - node_filesystem_avail_bytes{${FILES}} / (node_filesystem_size_bytes{${FILES}} > 0))`,
  },
};

/** What most want to know, as a sentence. "" where nothing is known. */
export function sentenceOf(d: SiteDistribution): string {
  const r = RESOURCES[d.column];
  if (!r || d.median === null || d.p90 === null) return "";
  const known = d.unknown > 0 ? " of which it is known" : "";
  return `Half of the sites${known} use ${d.median}% of ${r.of} or more; a tenth ${d.p90}% or more.`;
}

/** An AlertRules object that fires above a threshold, in percent. */
export function ruleOf(column: string, threshold: number): string {
  const r = RESOURCES[column];
  if (!r) return "";
  return `apiVersion: muster.dev/v1alpha1
kind: AlertRules
metadata:
  name: ${r.rule.replace(/([a-z])([A-Z])/g, "$1-$2").toLowerCase()}
  namespace: TENANT-system
spec:
  groups:
    - name: load
      rules:
        - alert: ${r.rule}
          expr: >-
            ${r.expr}
            > ${threshold}
          for: 15m
          labels: {severity: warning}
          annotations:
            summary: '{{ $labels.site }} ${r.summary}'
`;
}
