// Times for people: short and relative, with the absolute one at hand.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const clockShort = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

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

export const formatAbsolute = (t: number): string => absolute.format(t);
/** A line's time: the day too, down to milliseconds. */
export function formatDayClock(t: number): string {
  const d = new Date(t);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")}`;
}

const dayName = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** The day of a time in the reader's zone: Today, Yesterday, or its date. */
export function formatDay(t: number, now: number): string {
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  if (t >= midnight.getTime()) return "Today";
  midnight.setDate(midnight.getDate() - 1);
  return t >= midnight.getTime() ? "Yesterday" : dayName.format(t);
}

export const formatClock = (t: number): string => clock.format(t);

/** Labels of a time axis. */
export const formatTick = (t: number, rangeSeconds: number): string => (rangeSeconds > 20 * 3600 ? dayAndClock : clockShort).format(t);
