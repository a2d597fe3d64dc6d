// What somebody types of a PromQL expression: which names would complete it, what its values
// are, and what to do about an expression that the store refuses.

import type { Completion } from "./inventory";

/** Where the caret stands. */
export interface Place {
  /** What is typed there: a name of a metric or function, of a label, or a label's value. */
  kind: "metric" | "label" | "value";
  /** Of the text before the caret, where the word begins. */
  from: number;
  word: string;
  /** The metric whose labels are meant; "" for none. */
  metric: string;
  /** The label whose values are meant. */
  label: string;
}

const GROUPING = /(?:\b(?:by|without|on|ignoring|group_left|group_right)\s*)\(([^()]*)$/i;

/** What is typed at the caret; undefined where names don't help. */
export function placeOf(text: string, caret: number): Place | undefined {
  const before = text.slice(0, caret);
  const open = openBrace(before);
  if (open >= 0) {
    const inside = before.slice(open + 1);
    const metric = /([a-zA-Z_:][a-zA-Z0-9_:]*)\s*$/.exec(before.slice(0, open))?.[1] ?? "";
    const value = /(?:^|,)\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)$/.exec(inside);
    if (value) return { kind: "value", from: caret - value[2]!.length, word: value[2]!, metric, label: value[1]! };
    const label = /(?:^|,)\s*([a-zA-Z_][a-zA-Z0-9_]*)?$/.exec(inside);
    if (!label) return undefined;
    const word = label[1] ?? "";
    return { kind: "label", from: caret - word.length, word, metric, label: "" };
  }
  const grouping = GROUPING.exec(before);
  if (grouping) {
    const word = /[a-zA-Z0-9_]*$/.exec(grouping[1]!)![0];
    return { kind: "label", from: caret - word.length, word, metric: metricsOf(`${before.slice(0, grouping.index)} ${text.slice(caret)}`)[0] ?? "", label: "" };
  }
  const word = /[a-zA-Z_:][a-zA-Z0-9_:]*$/.exec(before)?.[0] ?? "";
  if (!word || /["'\d[]$/.test(before.slice(0, before.length - word.length))) return undefined;
  return { kind: "metric", from: caret - word.length, word, metric: "", label: "" };
}

/** The brace that is open at the end of a text, outside of strings; -1 for none. */
function openBrace(text: string): number {
  let at = -1;
  let quote = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (quote) {
      if (c === "\\") i++;
      else if (c === quote) quote = "";
    } else if (c === '"' || c === "'") quote = c;
    else if (c === "{") at = i;
    else if (c === "}") at = -1;
  }
  return at;
}

/** The selector whose series have the labels and values that are meant. */
export const matchOf = (p: Place): string => (p.metric ? p.metric : "");

const FUNCTIONS: readonly [string, string][] = [
  ["sum", "of all series"], ["avg", "mean of all series"], ["max", "largest of all series"], ["min", "smallest of all series"], ["count", "number of series"], ["topk", "the k largest"], ["bottomk", "the k smallest"],
  ["quantile", "quantile of all series"], ["stddev", "spread of all series"], ["rate", "per second, of a counter"], ["irate", "per second, of the last two samples"], ["increase", "of a counter, over the range"],
  ["delta", "of a gauge, over the range"], ["deriv", "slope per second"], ["predict_linear", "where it will be"], ["histogram_quantile", "quantile of a histogram"], ["avg_over_time", "mean over the range"],
  ["max_over_time", "largest over the range"], ["min_over_time", "smallest over the range"], ["sum_over_time", "sum over the range"], ["count_over_time", "samples in the range"], ["quantile_over_time", "quantile over the range"],
  ["last_over_time", "newest in the range"], ["changes", "how often it changed"], ["resets", "how often a counter began anew"], ["absent", "1 if there is nothing"], ["time", "now, in seconds"], ["timestamp", "of the sample"],
  ["clamp_max", "at most"], ["clamp_min", "at least"], ["abs", "without sign"], ["round", "to the nearest"], ["label_replace", "makes a label of another"], ["vector", "a number as a series"], ["by", "labels that stay"], ["without", "labels that go"],
];
const WORDS = new Set([...FUNCTIONS.map(([n]) => n), "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset", "inf", "nan"]);

/** The names of metrics in an expression. */
export function metricsOf(text: string): string[] {
  const bare = text.replace(/"(?:[^"\\]|\\.)*"/g, '""').replace(/\{[^}]*\}/g, " ").replace(/\[[^\]]*\]/g, " ").replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/gi, " ");
  const out: string[] = [];
  for (const m of bare.matchAll(/[a-zA-Z_:][a-zA-Z0-9_:]*(\s*\()?/g)) if (!m[1] && !WORDS.has(m[0].toLowerCase())) out.push(m[0]);
  return [...new Set(out)];
}

/** The completion of a place by names of the store. */
export function completionOf(p: Place, names: readonly string[], more: boolean): Completion | undefined {
  const word = p.word.toLowerCase();
  // Those of a shorter word may still stand: what no longer fits is not offered.
  const rank = (n: string) => (n.toLowerCase().startsWith(word) ? 0 : 1);
  const fitting = names.filter((n) => n !== p.word && n.toLowerCase().includes(word)).sort((a, b) => rank(a) - rank(b));
  const options = fitting.map((text) => ({ text: p.kind === "value" ? text.replaceAll("\\", "\\\\").replaceAll('"', '\\"') : text, note: p.kind === "metric" ? "metric" : p.kind === "label" ? "label" : "" }));
  if (p.kind === "metric") options.push(...FUNCTIONS.filter(([n]) => n.startsWith(word) && n !== word).slice(0, 8).map(([text, note]) => ({ text, note })));
  if (more && options.length > 0) options[options.length - 1]!.note += " · and more; type on";
  return options.length > 0 ? { from: p.from, to: p.from + p.word.length, options } : undefined;
}

/** The unit of an expression's values, as far as names tell; "" where they don't. */
export function unitOf(text: string): string {
  const all = metricsOf(text);
  if (all.length !== 1 || /[*/]/.test(text.replace(/\{[^}]*\}|"[^"]*"/g, ""))) return "";
  const name = all[0]!.replace(/_(?:total|sum|bucket|count)$/, "");
  const perSecond = /\b(?:rate|irate|deriv)\s*\(/.test(text);
  if (name.endsWith("_bytes")) return perSecond ? "B/s" : "bytes";
  if (name.endsWith("_seconds") && !perSecond && !name.endsWith("timestamp_seconds")) return "seconds";
  return name.endsWith("_ratio") && !perSecond ? "ratio" : "";
}

/** What to do about an error of the metric store; "" where its own words say it. */
export function wayOut(detail: string): string {
  if (/too many samples|maximum number of|too many (?:chunks|series)|limit.*exceeded|answer is too large/i.test(detail)) return "Narrow it with labels, such as {site=\"…\"}, aggregate with sum by (…), or look at a shorter time.";
  if (/took longer|timeout|timed out|deadline/i.test(detail)) return "Look at a shorter time, or narrow it with labels; the store answers one tenant's queries a few at a time.";
  if (/many-to-many|multiple matches|must be unique/i.test(detail)) return "Say which labels the two sides share, with on (…), and which side has several, with group_left or group_right.";
  if (/parse error/i.test(detail)) return "The figures before the fault are its line and column.";
  if (/can't be reached|unavailable|no usable answer/i.test(detail)) return "Scores and alerts go on without the store; try again in a moment.";
  return "";
}

/** A series' labels as PromQL has them. */
export function seriesName(metric: Record<string, string>): string {
  const { __name__: name = "", ...labels } = metric;
  const inside = Object.entries(labels).filter(([k]) => k !== "tenant").sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => `${k}="${v}"`).join(", ");
  return name && !inside ? name : `${name}{${inside}}`;
}

/** A series' key in what has no names of metrics. */
export const withoutName = (metric: Record<string, string>): string => seriesName({ ...metric, __name__: "" });
