// A time that a page asks for: one of some ranges up to now, or any from and to. It lives in the URL.

import { parseTime } from "./time";
import { zone } from "./zone";

/** A range by name, or, if range is "", from and to as RFC 3339; no `to` is now. */
export interface TimeSpan {
  range: string;
  from: string;
  to: string;
}

/** seconds 0: all of the time. */
export interface NamedRange {
  id: string;
  label: string;
  seconds: number;
}

/** What the address asks for; `otherwise` if it says nothing. */
export function parseSpan(p: URLSearchParams, ranges: readonly NamedRange[], otherwise: string): TimeSpan {
  const [from, to] = [p.get("from") ?? "", p.get("to") ?? ""];
  const range = ranges.find((r) => r.id === p.get("range"))?.id ?? (from || to ? "" : otherwise);
  return range ? { range, from: "", to: "" } : { range, from, to };
}

/** What a span covers, in ms, as far as the page knows; undefined if that has no beginning. */
export function spanOf(s: TimeSpan, ranges: readonly NamedRange[], now: number): { start: number; end: number } | undefined {
  const r = ranges.find((x) => x.id === s.range);
  if (r) return r.seconds > 0 ? { start: now - r.seconds * 1000, end: now } : undefined;
  const start = parseTime(s.from);
  if (start === undefined) return undefined;
  return { start, end: parseTime(s.to) ?? now };
}

/** A time of ours as the API takes it: RFC 3339 in UTC. */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString().replace(/\.000Z$/, "Z");

const two = (n: number): string => String(n).padStart(2, "0");

/** A time as people type it, in the console's zone and on a clock of 24 hours: 2026-11-25 20:00:00. "" for none. */
export function toTyped(time: string | number): string {
  const t = typeof time === "number" ? time : parseTime(time);
  if (t === undefined) return "";
  const d = new Date(t);
  if (zone.get() === "UTC") return d.toISOString().slice(0, 19).replace("T", " ");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** What was typed, as RFC 3339; "" for what is no time, such as the 31st of February. */
export function fromTyped(text: string): string {
  const m = /^(\d{4}-\d\d-\d\d)[ T]+(\d\d:\d\d(?::\d\d)?)$/.exec(text.trim());
  if (!m) return "";
  const t = new Date(`${m[1]}T${m[2]}${zone.get() === "UTC" ? "Z" : ""}`).getTime(); // without a zone: the browser's own
  return Number.isNaN(t) || !toTyped(t).startsWith(m[1]!) ? "" : rfc3339(t);
}

/** What an input for such a time has: one of the browser's own shows the clock of its language, and not the console's. */
export const TYPED_TIME = { type: "text", inputMode: "numeric", placeholder: "2026-11-25 20:00", maxLength: 19, autoComplete: "off", spellCheck: false } as const;
