import { describe, expect, it } from "vitest";
import type { TimelineEvent } from "../api/types";
import { byDay, parseKinds } from "./timeline";

const at = (time: Date): TimelineEvent => ({ id: "0", time: time.toISOString(), kind: "alert", severity: "info", tenant: "acme", text: "x" });

describe("timeline", () => {
  it("takes known kinds from an address, in order", () => {
    expect(parseKinds("policy,mood,alert,alert")).toEqual(["alert", "policy"]);
    expect(parseKinds(null)).toEqual([]);
  });
  it("puts events under days, of which the last two have names", () => {
    const now = new Date(2026, 2, 10, 9, 0).getTime();
    const days = byDay([at(new Date(2026, 2, 10, 0, 1)), at(new Date(2026, 2, 9, 23, 59)), at(new Date(2026, 2, 9, 0, 0)), at(new Date(2026, 2, 8, 23, 59))], now);
    expect(days.map((d) => d.events.length)).toEqual([1, 2, 1]);
    expect(days[0]!.day).toBe("Today");
    expect(days[1]!.day).toBe("Yesterday");
    expect(days[2]!.day).toContain("8");
  });
});
