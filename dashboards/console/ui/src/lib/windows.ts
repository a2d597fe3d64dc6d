// Planned maintenance.

import type { MaintenanceWindow } from "../api/types";
import { parseDuration } from "./duration";
import { parseTime } from "./time";

export type WindowState = "planned" | "open" | "over" | "recurring";

export function windowState(w: MaintenanceWindow, now: number): WindowState {
  const start = parseTime(w.start);
  if (start === undefined) return "recurring";
  const end = start + (parseDuration(w.duration) ?? 0) * 1000;
  return now < start ? "planned" : now < end ? "open" : "over";
}

/** Those to come first, in their order; what recurs after them; what is over last. */
export function sortWindows(all: readonly MaintenanceWindow[], now: number): MaintenanceWindow[] {
  const rank: Record<WindowState, number> = { open: 0, planned: 1, recurring: 2, over: 3 };
  return [...all].sort(
    (a, b) => rank[windowState(a, now)] - rank[windowState(b, now)] || (parseTime(a.start) ?? 0) - (parseTime(b.start) ?? 0) || (a.name < b.name ? -1 : 1),
  );
}

export const WINDOW_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

/** A name from the reason that no other window has. */
export function windowName(reason: string, taken: readonly string[]): string {
  const base =
    reason
      .normalize("NFD")
      .replace(/[\u0300-\u036f]/g, "")
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 40)
      .replace(/-+$/, "") || "window";
  for (let i = 1; ; i++) {
    const name = i === 1 ? base : `${base}-${i}`;
    if (!taken.includes(name)) return name;
  }
}

/** Whether it looks like cron's five fields; the server knows for sure. */
export function checkSchedule(s: string): string {
  const t = s.trim();
  if (/^@(hourly|daily|weekly|monthly|yearly|annually|midnight)$/.test(t)) return "want cron's five fields: minute, hour, day of the month, month, day of the week";
  const f = t.split(/\s+/);
  if (f.length !== 5) return "want cron's five fields: minute, hour, day of the month, month, day of the week";
  const bad = f.find((x) => !/^[0-9A-Za-z*?/,-]+$/.test(x));
  return bad ? `"${bad}" is not a field of cron's` : "";
}

export function checkWindowDuration(s: string): string {
  const d = parseDuration(s);
  return d === undefined || d < 60 || d > 168 * 3600 ? "want 1m to 168h, such as 90m or 2h" : "";
}
