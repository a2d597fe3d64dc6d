// What the pages of links show: figures in words, and what charts ask the metric store.

import type { Colour, Counts, Link, Matrix } from "../api/types";
import { type BetweenAnswer, betweenOf, withBetween, withoutGaps } from "./between";
import type { Line } from "./chart";
import { DASH, formatCount, formatPercent, formatValue } from "./format";
import { linesOf, promString, summarize } from "./history";
import type { SiteRef } from "./site";

/** The page of a site's link. */
export const linkPath = (s: SiteRef, range = ""): string => `/connectivity/${encodeURIComponent(s.name)}?${new URLSearchParams({ tenant: s.tenant, ...(range ? { range } : {}) }).toString()}`;

export const formatMillis = (v: number | null): string => (v === null ? DASH : formatValue(v / 1000, "seconds"));
export const formatRate = (v: number | null): string => (v === null ? DASH : `${formatValue(v, "bytes")}/s`);
export const formatShare = (v: number | null): string => (v === null ? DASH : formatPercent(v));
export const formatTimes = (v: number | null): string => (v === null ? DASH : formatCount(v));

export interface Column {
  /** How the API sorts by it, what is worst first. */
  sort: string;
  title: string;
  /** What it is, for a tooltip. */
  doc: string;
  text: (l: Link) => string;
}

/** The figures of the table, and what they are sorted by. */
export const COLUMNS: readonly Column[] = [
  { sort: "-link.roundTrip", title: "Round trip", doc: "To the regional and back, as the kernel of the site measures it", text: (l) => formatMillis(l.roundTrip) },
  { sort: "-link.loss", title: "Loss", doc: "TCP segments that were sent again, of those that were sent in 5 minutes, or in four scrapes of a site that is scraped seldom", text: (l) => formatShare(l.loss) },
  { sort: "-link.sent", title: "Sent", doc: "What the site sends to the regional", text: (l) => formatRate(l.sent) },
  { sort: "-link.received", title: "Received", doc: "What the site receives from the regional", text: (l) => formatRate(l.received) },
  { sort: "-link.reconnects", title: "Reconnects", doc: "How often its stream was opened anew in an hour", text: (l) => formatTimes(l.reconnects) },
  { sort: "-link.requests", title: "Requests/min", doc: "Pushes and other requests to the regional", text: (l) => formatTimes(l.requests) },
  { sort: "-link.errors", title: "Errors", doc: "Requests that failed, of those of 5 minutes, or of four scrapes of a site that is scraped seldom", text: (l) => formatShare(l.errors) },
];

const SHARE = 0.1;

/** The colour of many links: that of the worst tenth of those that are known. */
export function colourOf(c: Counts): Colour {
  const known = c.green + c.orange + c.red;
  if (known === 0) return "grey";
  if (c.red >= SHARE * known) return "red";
  return c.red + c.orange >= SHARE * known ? "orange" : "green";
}

/** How thick the line to a group is, in pixels: ten times the sites, three pixels more. */
export const thicknessOf = (sites: number): number => Math.min(14, 2 + 3 * Math.log10(Math.max(1, sites)));

/** A chart of a link: what it asks, by which label its lines are told apart, and how its values read. */
export interface LinkChart {
  id: string;
  title: string;
  /** What it says, below it. */
  doc: string;
  query: string;
  label: string;
  format: (v: number) => string;
  /** The values are bytes a second. */
  bytes?: boolean;
  /** What is said where there are no lines. */
  none: string;
  /** Lines that are zero all the time are left out. */
  sparse?: boolean;
}

/** How old a sample may be that stands for now: PromQL's default, in seconds. */
const LOOKBACK = 300;

/** What rates are over where points are a step apart: no sample is left out. */
const rateWindow = (window: number, step: number): string => `[${Math.max(window, step)}s]`;

/** The charts of a site's link, with its window in seconds. */
export function chartsOf(site: string, window: number, step: number): LinkChart[] {
  const metric = (name: string) => `muster_agent_link_${name}{site=${promString(site)}}`;
  const w = rateWindow(window, step);
  const rate = (name: string) => `rate(${metric(name)}${w})`;
  // Four scrapes make a window: two of them and a little more are further apart than PromQL looks back.
  const gauge = (name: string) => (window > 2 * LOOKBACK ? `last_over_time(${metric(name)}[${window}s])` : metric(name));
  const direction = (name: string, word: string) => `label_replace(sum(${rate(name)}), "direction", "${word}", "", "")`;
  return [
    { id: "round-trip", title: "Round trip", doc: "Smoothed by the kernel of the site, by what the connection is for.", query: `max by (connection) (${gauge("round_trip_seconds")})`, label: "connection", format: (v) => formatValue(v, "seconds"), none: "The site has told of no round trip in this time." },
    { id: "loss", title: "Loss", doc: "TCP segments that were lost and sent again, of those that were sent.", query: `100 * sum by (connection) (${rate("segments_retransmitted_total")}) / (sum by (connection) (${rate("segments_sent_total")}) > 0)`, label: "connection", format: formatPercent, none: "The site has sent nothing in this time." },
    { id: "throughput", title: "Throughput", doc: "All that goes over the link, encrypted.", query: `${direction("sent_bytes_total", "sent")} or ${direction("received_bytes_total", "received")}`, label: "direction", format: (v) => formatRate(v), bytes: true, none: "The site has told of no traffic in this time." },
    { id: "requests", title: "Requests", doc: "A minute, by what they are for.", query: `60 * sum by (target) (${rate("request_seconds_count")})`, label: "target", format: (v) => `${formatValue(v)}/min`, none: "There were no requests in this time." },
    { id: "errors", title: "Errors", doc: "Requests that failed, a minute. Refused: HTTP status 4xx; failed: 5xx; unreachable: no answer.", query: `60 * label_join(sum by (target, reason) (${rate("request_errors_total")}), "what", " ", "target", "reason")`, label: "what", format: (v) => `${formatValue(v)}/min`, none: "No request failed in this time.", sparse: true },
    { id: "latency", title: "Time to answer", doc: "The mean until an answer began, by what the request was for.", query: `sum by (target) (${rate("request_seconds_sum")}) / (sum by (target) (${rate("request_seconds_count")}) > 0)`, label: "target", format: (v) => formatValue(v, "seconds"), none: "There were no requests in this time." },
    { id: "connections", title: "Connections", doc: "Opened anew and failed, in the time of a point.", query: `label_replace(sum(increase(${metric("connects_total")}${w})), "what", "opened", "", "") or label_replace(sum(increase(${metric("connect_errors_total")}${w})), "what", "failed", "", "")`, label: "what", format: (v) => formatValue(v), none: "The site has told of no connection in this time." },
    { id: "handshake", title: "TLS handshake", doc: "How long the last one took, by what the connection is for.", query: `max by (connection) (${gauge("handshake_seconds")})`, label: "connection", format: (v) => formatValue(v, "seconds"), none: "The site has told of no handshake in this time." },
  ];
}

/** The charts of what the site's ingress or mesh tells of requests, by service: Envoy, Traefik, NGINX, Linkerd. */
export function serviceChartsOf(site: string, window: number, step: number): LinkChart[] {
  const of = `site=${promString(site)}`;
  const rate = (metric: string, more = "") => `rate(${metric}{${of}${more}}${rateWindow(window, step)})`;
  const named = (expr: string, label: string, regex = "(.+)") => `label_replace(${expr}, "service", "$1", "${label}", "${regex}")`;
  // A pod's name without what its controllers append.
  const pod = "(.+?)(?:-[a-f0-9]{6,10})?-[a-z0-9]{5}";
  const by = (envoy: string, traefik: string, nginx: string, linkerd: string) =>
    `sum by (service) (${named(envoy, "envoy_cluster_name")} or ${traefik} or ${named(nginx, "exported_service")} or ${named(linkerd, "pod", pod)})`;
  const all = by(rate("envoy_cluster_upstream_rq_xx"), rate("traefik_service_requests_total"), rate("nginx_ingress_controller_requests"), rate("response_total"));
  const failed = by(rate("envoy_cluster_upstream_rq_xx", ',envoy_response_code_class="5"'), rate("traefik_service_requests_total", ',code=~"5.*"'), rate("nginx_ingress_controller_requests", ',status=~"5.*"'), rate("response_total", ',classification="failure"'));
  const time = (end: string) => by(rate(`envoy_cluster_upstream_rq_time_${end}`), rate(`traefik_service_request_duration_seconds_${end}`), rate(`nginx_ingress_controller_request_duration_seconds_${end}`), rate(`response_latency_ms_${end}`));
  const seconds = by(`0.001 * ${rate("envoy_cluster_upstream_rq_time_sum")}`, rate("traefik_service_request_duration_seconds_sum"), rate("nginx_ingress_controller_request_duration_seconds_sum"), `0.001 * ${rate("response_latency_ms_sum")}`);
  const none = "No ingress or mesh of the site has told of requests in this time.";
  return [
    { id: "service-requests", title: "Requests by service", doc: "A second.", query: all, label: "service", format: (v) => `${formatValue(v)}/s`, none },
    { id: "service-errors", title: "Errors by service", doc: "Percent of its requests that failed: HTTP status 5xx, with Linkerd what it calls a failure.", query: `100 * ${failed} / (${all} > 0)`, label: "service", format: formatPercent, none: "No request to a service failed in this time.", sparse: true },
    { id: "service-latency", title: "Time to answer by service", doc: "The mean.", query: `${seconds} / (${time("count")} > 0)`, label: "service", format: (v) => formatValue(v, "seconds"), none },
  ];
}

/** The lines of a chart by name, with what was between their points where that is known. */
export function chartLines(c: LinkChart, points: { matrix: Matrix; start: number; end: number }, step: number, between: BetweenAnswer | undefined): Line[] {
  const nameOf = (value: string) => value || c.title;
  const lines = [...linesOf(points.matrix, c.label, points.start, points.end, step)].map(([value, samples]) => ({ name: nameOf(value), samples }));
  const steps = between && betweenOf(between, (m) => nameOf(m[c.label] ?? ""));
  const all = withBetween(lines, c.sparse && steps ? withoutGaps(steps) : steps);
  // What was there between the points alone is no line of zeros.
  return all.filter((l) => !c.sparse || (summarize(l.samples, l.between)?.max ?? 0) > 0).sort((a, b) => (a.name < b.name ? -1 : 1));
}
