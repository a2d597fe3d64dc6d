// Events of the timeline as marks of a chart.

import type { TimelineEvent, TimelineKind } from "../api/types";
import type { Mark, Tone } from "./chart";

/** The kinds that a chart can be marked with, and those that it is marked with at first. */
export const MARKABLE: readonly TimelineKind[] = ["alert", "colour", "maintenance", "policy", "rollout", "software", "connection"];
export const MARKED: readonly TimelineKind[] = ["alert", "colour", "maintenance", "policy"];

const TONE: Record<string, Tone> = { good: "good", warning: "warn", critical: "bad" };

/**
 * Oldest first. Maintenance lasts from its begin to its end. One whose begin is not among the events began before
 * start, and one without an end goes on beyond end, both in seconds.
 */
export function marksOf(events: readonly TimelineEvent[], start: number, end: number): Mark[] {
  const out: Mark[] = [];
  const open = new Map<string, Mark>();
  for (const e of [...events].reverse()) {
    const mark: Mark = { t: Date.parse(e.time) / 1000, tone: TONE[e.severity] ?? "info", text: e.text };
    if (e.kind === "maintenance") {
      const key = `${e.site ?? ""}/${e.object ?? ""}`;
      const began = open.get(key);
      if (e.before && began) began.until = mark.t;
      else if (e.before) out.unshift({ ...mark, t: start, until: mark.t });
      if (e.before) open.delete(key);
      else open.set(key, mark);
    }
    out.push(mark);
  }
  for (const mark of open.values()) mark.until = Math.max(end, mark.t);
  return out;
}
