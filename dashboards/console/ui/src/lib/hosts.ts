// Virtual hosts: Services of some sites that others reach through the regionals. What sites
// measure of them (docs/reference/link-metrics.md) as queries and in words.

import type { Vector, VirtualHost } from "../api/types";
import { formatCount, plural } from "./format";
import { promString } from "./history";

/** A host within its tenant, as sites name it in their metrics: NAMESPACE/NAME. */
export const hostKey = (h: Pick<VirtualHost, "namespace" | "name">): string => `${h.namespace}/${h.name}`;

export const hostsPath = "/virtual-hosts";

export const hostPath = (h: Pick<VirtualHost, "tenant" | "namespace" | "name">): string => `${hostsPath}/${encodeURIComponent(h.namespace)}/${encodeURIComponent(h.name)}?tenant=${encodeURIComponent(h.tenant)}`;

/** The name that applications write: HOST:PORT. */
export const addressOf = (h: VirtualHost): string => (h.port > 0 ? `${h.host}:${h.port}` : h.host);

/** The virtual sites from which it is reached, each once. */
export const consumersOf = (h: VirtualHost): string[] => [...new Set(h.policies.flatMap((p) => p.virtualSites))].sort();

/** What a site has to do with a host, by its virtual sites. */
export const partsOf = (h: VirtualHost, virtualSites: readonly string[]) => ({ provides: virtualSites.includes(h.virtualSite), consumes: consumersOf(h).some((v) => virtualSites.includes(v)) });

/** The inventory's query for the sites that have a part in it. */
export function sitesQuery(h: VirtualHost, only: "" | "provides" | "consumes" = ""): string {
  const virtual = only === "provides" ? [h.virtualSite] : only === "consumes" ? consumersOf(h) : [...new Set([h.virtualSite, ...consumersOf(h)])];
  return `virtualSite in (${virtual.map((v) => JSON.stringify(v)).join(", ")})`;
}

const PREFIX = "muster_agent_host_";
const siteIs = (sites: readonly string[]) => (sites.length > 0 ? `,site=~${promString(sites.map((s) => s.replaceAll(".", "\\.")).join("|"))}` : "");

/** Connections that are open, bytes a second both ways, and attempts in an hour, of series with a selector's inside. */
function figuresBy(labels: string, inside: string) {
  const tried = (more = "") => `round(sum by (${labels}) (increase(${PREFIX}attempts_total{${inside}${more}}[1h])))`;
  return {
    open: `sum by (${labels}) (${PREFIX}connections{${inside}})`,
    bytes: `sum by (${labels}) (rate(${PREFIX}sent_bytes_total{${inside}}[5m]) + rate(${PREFIX}received_bytes_total{${inside}}[5m]))`,
    tried: tried(),
    failed: tried(',result!="ok"'),
  };
}

/** What is asked of the sites of a host, each with the labels site and direction. */
export const siteQueries = (host: string, sites: readonly string[]) => figuresBy("site, direction", `host=${promString(host)}${siteIs(sites)}`);

/** What is asked of a tenant's hosts, with the label host. Each connection has two ends; the one that asked counts. */
export const hostQueries = figuresBy("host", 'direction="out"');

/** What is asked of the hosts of a site, with the label host. */
export const siteHostQueries = (site: string) => figuresBy("host", `site=${promString(site)}`);

/** As many links between services as are shown. */
export const MOST_LINKS = 50;

/** The links between services, the busiest first: labels host, site and peer. */
export function linkQueries(host: string) {
  const of = `{direction="out"${host ? `,host=${promString(host)}` : ""}}`;
  const rate = (what: string) => `sum by (host, site, peer) (rate(${PREFIX}${what}_bytes_total${of}[5m]))`;
  return {
    total: `count(sum by (host, site, peer) (${PREFIX}connections${of}))`,
    busiest: `topk(${MOST_LINKS}, ${rate("sent")} + ${rate("received")})`,
    open: `sum by (host, site, peer) (${PREFIX}connections${of}) and topk(${MOST_LINKS}, ${rate("sent")} + ${rate("received")})`,
    failing: `topk(${MOST_LINKS}, round(sum by (host, site) (increase(${PREFIX}attempts_total{direction="out",result!="ok"${host ? `,host=${promString(host)}` : ""}}[1h]))) > 0)`,
  };
}

export interface Point {
  metric: Record<string, string>;
  value: number;
}

/** The series of an answer, which is of the queries here, and so a vector. */
export const pointsOf = (v: Vector | undefined): Point[] => (v?.data?.result ?? []).flatMap((r) => (typeof r === "object" ? [{ metric: r.metric, value: Number(r.value[1]) }] : []));

/** The values of an answer by some of its labels, joined by spaces. */
export const valuesBy = (v: Vector | undefined, ...labels: readonly string[]): Map<string, number> => new Map(pointsOf(v).map((p) => [labels.map((l) => p.metric[l] ?? "").join(" "), p.value]));

export interface Tries {
  /** In the last hour; undefined: the site has told of none. */
  tried: number | undefined;
  failed: number | undefined;
}

/** How attempts went, by the labels of two answers, joined by spaces; nothing is known until both are there: without the second all seem to succeed. */
export function triesBy(tried: Vector | undefined, failed: Vector | undefined, ...labels: readonly string[]): (key: string) => Tries | undefined {
  if (!tried || !failed) return () => undefined;
  const [all, bad] = [valuesBy(tried, ...labels), valuesBy(failed, ...labels)];
  return (key) => ({ tried: all.get(key), failed: bad.get(key) });
}

/** How attempts went, in words. */
export function triesText(tries: Tries | undefined): string {
  if (!tries) return "attempts not known yet";
  const { tried = 0, failed = 0 } = tries;
  if (tried === 0) return "not tried in an hour";
  if (failed === 0) return `${plural(tried, "attempt")} in an hour, none failed`;
  return `${formatCount(failed)} of ${plural(tried, "attempt")} in an hour failed`;
}

/** How attempts went, as a colour: red where none succeeded. */
export function triesColour(tries: Tries | undefined): "green" | "orange" | "red" | "grey" {
  const { tried = 0, failed = 0 } = tries ?? {};
  if (tried === 0) return "grey";
  if (failed === 0) return "green";
  return failed < tried ? "orange" : "red";
}

/** A host's colour: of its object while that is not ready, else of what is tried; one that nobody has tried is fine. */
export function hostColour(h: Pick<VirtualHost, "ready" | "reason">, tries: Tries | undefined): keyof typeof hostReach {
  if (!h.ready) return h.reason ? "red" : "grey";
  if (!tries) return "grey";
  const went = triesColour(tries);
  return went === "grey" ? "green" : went;
}

/** What a host's colour says. */
export const hostReach = { green: "reachable", orange: "reachable, not always", red: "not reachable", grey: "not known yet" };
