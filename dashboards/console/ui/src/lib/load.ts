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

/** An AlertRules object as the API makes it. */
export interface RuleObject {
  name: string;
  spec: { groups: { name: string; rules: { alert: string; expr: string; for: string; labels: Record<string, string>; annotations: Record<string, string> }[] }[] };
}

/** Names of sites that go into an expression: what an evaluation looks for, and an engine compiles, is bounded. */
const MAX_NAMES = 4000;

/** Whether an expression can name all of these sites. */
export const nameable = (sites: readonly string[]): boolean => sites.length > 0 && sites.join("|").length <= MAX_NAMES;

/** The name that a rule about a column has unless somebody gives another. */
export const ruleName = (column: string): string => (RESOURCES[column]?.rule ?? "").replace(/([a-z])([A-Z])|([A-Z])([A-Z][a-z])/g, "$1$3-$2$4").toLowerCase();

/** What is wrong with the name of an object; "" if nothing. */
export const nameFault = (name: string): string => (name.length <= 253 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(name) ? "" : "want lower-case letters, digits, - or ., such as site-cpu-high");

/** Alert rules that fire above a threshold, in percent; at these sites alone unless none is named. */
export function ruleOf(column: string, threshold: number, name = ruleName(column), sites: readonly string[] = []): RuleObject | undefined {
  const r = RESOURCES[column];
  if (!r) return undefined;
  const only = `site=~"${sites.join("|")}"`; // names of sites have no character that means something there
  const expr = sites.length === 0 ? r.expr : r.expr.replace(/\b(node_\w+)(\{?)/g, (_, metric: string, brace: string) => (brace ? `${metric}{${only},` : `${metric}{${only}}`));
  const rule = { alert: r.rule, expr: `${expr} > ${threshold}`, for: "15m", labels: { severity: "warning" }, annotations: { summary: `{{ $labels.site }} ${r.summary}` } };
  return { name, spec: { groups: [{ name: "load", rules: [rule] }] } };
}

/** The object as YAML, to be applied or kept in a repository. */
export function yamlOf(o: RuleObject, tenant: string): string {
  const rule = o.spec.groups[0]!.rules[0]!;
  return `apiVersion: muster.dev/v1alpha1
kind: AlertRules
metadata:
  name: ${o.name}
  namespace: ${tenant || "TENANT"}-system
spec:
  groups:
    - name: ${o.spec.groups[0]!.name}
      rules:
        - alert: ${rule.alert}
          expr: >-
            ${rule.expr}
          for: ${rule.for}
          labels: {severity: ${rule.labels.severity}}
          annotations:
            summary: '${rule.annotations.summary}'
`;
}
