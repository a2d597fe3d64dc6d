// Lists of log records: newest first, each once, and never more than a bound.

import type { LogRecord } from "../api/types";

export const lineKey = (r: LogRecord): string => `${r.timestamp}/${r.id}`;

const keys = new WeakMap<LogRecord, string>();

/** A text that sorts as the times do, down to nanoseconds. */
function sortKey(r: LogRecord): string {
  let k = keys.get(r);
  if (k === undefined) {
    const m = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z$/.exec(r.timestamp);
    const ms = m ? 0 : Date.parse(r.timestamp);
    k = m ? `${m[1]}.${(m[2] ?? "").padEnd(9, "0")}` : Number.isNaN(ms) ? r.timestamp : new Date(ms).toISOString().slice(0, -1).padEnd(29, "0");
    keys.set(r, k);
  }
  return k;
}

/** Newest first; equal times in an order that never changes. */
export function compareNewest(a: LogRecord, b: LogRecord): number {
  const [x, y] = [sortKey(a), sortKey(b)];
  return x > y ? -1 : x < y ? 1 : a.id > b.id ? -1 : a.id < b.id ? 1 : 0;
}

/** Both lists as one, each record once, at most max of the newest. */
export function mergeLines(have: readonly LogRecord[], more: readonly LogRecord[], max = Infinity): LogRecord[] {
  const seen = new Set<string>();
  const out: LogRecord[] = [];
  for (const list of [have, more]) {
    for (const r of list) {
      const k = lineKey(r);
      if (seen.has(k)) continue;
      seen.add(k);
      out.push(r);
    }
  }
  out.sort(compareNewest);
  return out.length > max ? out.slice(0, max) : out;
}

/** Where a line comes from: pod and container, else the unit, else the machine. */
export function originOf(r: LogRecord): string {
  if (r.pod) return [r.namespace, r.pod, r.container].filter(Boolean).join("/");
  return r.unit || r.node;
}

/** The fields of a record as the query language names them, without those that are empty. */
export function fieldsOf(r: LogRecord): [name: string, value: string][] {
  const own: [string, string | undefined][] = [
    ["site", r.site], ["region", r.region], ["node", r.node], ["namespace", r.namespace], ["pod", r.pod], ["container", r.container],
    ["unit", r.unit], ["stream", r.stream], ["severity", r.severity],
  ];
  const labels = Object.entries(r.labels ?? {}).sort().map(([k, v]): [string, string] => [`labels.${k}`, v]);
  return [...own.filter((f): f is [string, string] => !!f[1]), ...labels];
}
