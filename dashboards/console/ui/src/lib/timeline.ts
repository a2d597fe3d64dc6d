import type { TimelineEvent, TimelineKind } from "../api/types";
import { formatDay } from "./time";
import type { NamedRange } from "./time-span";

export const KINDS: readonly TimelineKind[] = ["colour", "alert", "notification", "silence", "maintenance", "registration", "connection", "policy", "rollout", "software"];

export const kindName: Record<TimelineKind, string> = {
  colour: "Colour",
  alert: "Alert",
  notification: "Notification",
  silence: "Silence",
  maintenance: "Maintenance",
  registration: "Registration",
  connection: "Connection",
  policy: "Edit",
  rollout: "Rollout",
  software: "Software",
};

/** The kinds in an address: known ones, once each, in order. */
export function parseKinds(text: string | null): TimelineKind[] {
  const want = (text ?? "").split(",");
  return KINDS.filter((k) => want.includes(k));
}

/** The times that a timeline is asked for by name. */
export const TIMES: readonly NamedRange[] = [
  { id: "all", label: "All", seconds: 0 },
  { id: "1h", label: "1 h", seconds: 3600 },
  { id: "24h", label: "24 h", seconds: 24 * 3600 },
  { id: "7d", label: "7 d", seconds: 7 * 24 * 3600 },
  { id: "30d", label: "30 d", seconds: 30 * 24 * 3600 },
];
export const DEFAULT_TIME = "all";

export interface Day {
  day: string;
  events: TimelineEvent[];
}

/** Events, the newest first, by the day of the reader's own zone. */
export function byDay(events: readonly TimelineEvent[], now: number): Day[] {
  const out: Day[] = [];
  for (const e of events) {
    const day = formatDay(Date.parse(e.time), now);
    const last = out.at(-1);
    if (last?.day === day) last.events.push(e);
    else out.push({ day, events: [e] });
  }
  return out;
}
