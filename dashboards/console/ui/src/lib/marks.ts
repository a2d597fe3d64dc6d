// Events of the timeline as marks of a chart.

import type { TimelineEvent, TimelineKind } from "../api/types";
import type { Mark, Tone } from "./chart";

/** The kinds that a chart can be marked with, and those that it is marked with at first. */
export const MARKABLE: readonly TimelineKind[] = ["alert", "colour", "maintenance", "policy", "rollout", "software", "connection"];
export const MARKED: readonly TimelineKind[] = ["alert", "colour", "maintenance", "policy"];

const TONE: Record<string, Tone> = { good: "good", warning: "warn", critical: "bad" };

/** Oldest first. Maintenance lasts from its begin to its end, if that is among the events. */
export function marksOf(events: readonly TimelineEvent[]): Mark[] {
  const out: Mark[] = [];
  const open = new Map<string, Mark>();
  for (const e of [...events].reverse()) {
    const mark: Mark = { t: Date.parse(e.time) / 1000, tone: TONE[e.severity] ?? "info", text: e.text };
    if (e.kind === "maintenance") {
      const key = `${e.site ?? ""}/${e.object ?? ""}`;
      const began = open.get(key);
      if (e.before && began) {
        began.until = mark.t;
        open.delete(key);
      } else open.set(key, mark);
    }
    out.push(mark);
  }
  return out;
}
