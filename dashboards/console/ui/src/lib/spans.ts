import type { AlertSpan } from "../api/types";
import { parseTime } from "./time";

/** The parts of the spans that lie within a time (ms), oldest first; those that still last end with it. */
export function spansWithin(spans: readonly AlertSpan[], start: number, end: number): { start: number; end: number }[] {
  return spans
    .flatMap((s) => {
      const from = parseTime(s.startsAt);
      const to = parseTime(s.endsAt) ?? end;
      return from === undefined || to <= start || from >= end ? [] : [{ start: Math.max(from, start), end: Math.min(to, end) }];
    })
    .sort((a, b) => a.start - b.start);
}
