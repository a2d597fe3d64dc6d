// Times for people: short and relative, with the absolute one at hand. Clocks have 24 hours
// and one zone.

import { zoneName } from "./zone";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });

/** A format in the console's zone, made again when that changes. */
function inZone(options: Intl.DateTimeFormatOptions): (t: number) => string {
  let made: { zone: string; format: Intl.DateTimeFormat } | undefined;
  return (t) => {
    const name = zoneName();
    if (made?.zone !== name) made = { zone: name, format: new Intl.DateTimeFormat("en-GB", { ...options, timeZone: name }) };
    return made.format.format(t);
  };
}

const clockParts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const absolute = inZone({ day: "numeric", month: "short", year: "numeric", ...clockParts, second: "2-digit", timeZoneName: "short" });
const moment = inZone({ day: "numeric", month: "short", year: "numeric", ...clockParts, timeZoneName: "short" });
const clock = inZone({ ...clockParts, second: "2-digit" });
const clockShort = inZone(clockParts);
const dayAndClock = inZone({ day: "numeric", month: "short", ...clockParts });
const dayShort = inZone({ day: "numeric", month: "short" });
const isoDay = inZone({ year: "numeric", month: "2-digit", day: "2-digit" });

/** Milliseconds of an RFC 3339 time; undefined for none, garbage and Go's zero time. */
export function parseTime(s: string | null | undefined): number | undefined {
  if (!s || s.startsWith("0001-")) return undefined;
  const t = Date.parse(s);
  return Number.isNaN(t) ? undefined : t;
}

/** Such as "12s ago", "in 3d". */
export function formatRelative(t: number, now: number): string {
  const d = t - now;
  const a = Math.abs(d);
  if (a < 2 * SECOND) return "just now";
  if (a < MINUTE) return relative.format(Math.trunc(d / SECOND), "second");
  if (a < HOUR) return relative.format(Math.trunc(d / MINUTE), "minute");
  if (a < 2 * DAY) return relative.format(Math.trunc(d / HOUR), "hour");
  return relative.format(Math.trunc(d / DAY), "day");
}

/** How long: "42 s", "3 min", "5 h", "2 days". */
export function formatDuration(seconds: number): string {
  const a = Math.abs(seconds);
  if (a < 120) return `${Math.round(seconds)} s`;
  if (a < 7200) return `${Math.round(seconds / 60)} min`;
  if (a < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const formatAbsolute = (t: number): string => absolute(t);
/** A line's time: the day too, down to milliseconds. */
export function formatDayClock(t: number): string {
  const [day, month] = isoDay(t).split("/");
  return `${month}-${day} ${clock(t)}.${String(((t % 1000) + 1000) % 1000).padStart(3, "0")}`;
}

const dayName = inZone({ weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** The day of a time in the console's zone: Today, Yesterday, or its date. */
export function formatDay(t: number, now: number): string {
  const day = isoDay(t);
  if (day === isoDay(now)) return "Today";
  return day === isoDay(now - DAY) ? "Yesterday" : dayName(t);
}

/**
 * A text as a server made it for readers in all zones, with its moments, such as 2026-11-28 04:10 UTC, in
 * the console's. What else may look like one, in a name or a comment, is then shown in that zone too.
 */
export function zoned(text: string): string {
  return text.replace(/\b(\d{4}-\d\d-\d\d) ([01]\d|2[0-3]):([0-5]\d) UTC\b/g, (said, day: string, hour: string, minute: string) => {
    const t = Date.parse(`${day}T${hour}:${minute}Z`);
    return Number.isNaN(t) ? said : moment(t);
  });
}

export const formatClock = (t: number): string => clock(t);

/** Labels of a time axis. */
export const formatTick = (t: number, rangeSeconds: number): string => (rangeSeconds > 8 * 86_400 ? dayShort : rangeSeconds > 20 * 3600 ? dayAndClock : clockShort)(t);
