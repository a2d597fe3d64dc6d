import { describe, expect, it } from "vitest";
import type { SiteReset } from "../api/types";
import { phaseText, STEPS, underWay } from "./reset";

const at = (phase: SiteReset["phase"]): SiteReset => ({ phase, since: null, expires: null, message: "", overdue: false });

describe("a reset", () => {
  it("is under way until it is over", () => {
    const all = Object.keys(phaseText) as SiteReset["phase"][];
    expect(all.filter((p) => underWay(at(p)))).toEqual(STEPS.slice(0, 3));
  });
});
