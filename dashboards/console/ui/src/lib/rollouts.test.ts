import { describe, expect, it } from "vitest";
import type { RolloutSite, RolloutStep } from "../api/types";
import { anyOf, atStep, cellsOf, countdown, cut, cutSteps, groupsOf, kindOfChange, parseRolloutFilter, spread, stepsText, windowOf } from "./rollouts";

const site = (name: string, wave: number, step: RolloutStep): RolloutSite => ({ site: name, wave, step, has: 0 });
const many = (n: number, step: (i: number) => RolloutStep) => Array.from({ length: n }, (_, i) => site(`s${i}`, 1, step(i)));
const wave = (startedAt: string | null, number = 1) => ({ number, name: "", sites: { total: 0, waiting: 0, updating: 0, updated: 0, passed: 0, failed: 0, offline: 0, held: 0, rolledBack: 0 }, soakSeconds: 0, approval: false, startedAt, passedAt: null });

describe("cells", () => {
  it("keep the places of few sites", () => {
    expect(cellsOf([site("b", 1, "failed"), site("a", 1, "passed")]).map((c) => [c.step, c.sites])).toEqual([
      ["failed", ["b"]],
      ["passed", ["a"]],
    ]);
  });
  it("put many together without losing one, nor the one that failed", () => {
    const cells = cellsOf(many(3000, (i) => (i === 1234 ? "failed" : i % 2 ? "passed" : "waiting")));
    expect(cells.length).toBeLessThanOrEqual(400);
    expect(cells.reduce((n, c) => n + c.sites.length, 0)).toBe(3000);
    expect(cells.filter((c) => c.step === "failed")).toHaveLength(1);
    expect(cells[0]?.step).toBe("passed");
  });
});

describe("who is compared", () => {
  it("what has or had the change with what never had it; who is away with nobody", () => {
    const g = groupsOf({ waves: [wave("2026-01-01T00:00:00Z"), wave(null, 2)] }, [site("a", 1, "rolledBack"), site("b", 1, "failed"), site("c", 2, "waiting"), site("d", 2, "offline")]);
    expect(g).toEqual({ changed: ["a", "b"], unchanged: ["c"], unchangedName: "unchanged" });
  });
  it("once all have it, the last wave until it began", () => {
    const g = groupsOf({ waves: [wave("2026-01-01T00:00:00Z"), wave("2026-01-01T01:00:00Z", 2)] }, [site("a", 1, "passed"), site("b", 2, "passed")]);
    expect(g.changed).toEqual(["a"]);
    expect(g.unchanged).toEqual(["b"]);
    expect(cut([[g.until! - 1, 90], [g.until! + 1, 80]], g.until)).toEqual([[g.until! - 1, 90], [g.until! + 1, null]]);
  });
  it("by the numbers of the waves, of which some are shown", () => {
    const g = groupsOf({ waves: [wave("2026-01-01T00:00:00Z", 101), wave("2026-01-01T01:00:00Z", 102)] }, [site("a", 101, "passed"), site("b", 102, "passed")]);
    expect(g.until).toBe(Date.parse("2026-01-01T01:00:00Z") / 1000);
  });
  it("nobody, while none has it", () => {
    expect(groupsOf({ waves: [] }, [site("a", 1, "waiting")]).changed).toEqual([]);
  });
  it("is spread evenly, and quoted", () => {
    expect(spread([1, 2, 3, 4, 5, 6], 3)).toEqual([1, 3, 5]);
    expect(spread([1], 3)).toEqual([1]);
    expect(anyOf(["a-1", "b.c"])).toBe("a-1|b\\.c");
  });
});

describe("counts", () => {
  const c = { total: 10, waiting: 3, updating: 1, updated: 5, passed: 2, failed: 1, offline: 0, held: 0, rolledBack: 0 };
  it("what passed is among the updated, and counted once", () => {
    expect(atStep(c, "ready")).toBe(3);
    expect(stepsText(c)).toBe("2 passed, 3 ready, 1 updating, 3 waiting, 1 failed");
  });
});

it("the window goes on for a while after the end, never beyond now", () => {
  const r = { createdAt: "2026-01-01T00:00:00Z", startedAt: "2026-01-01T00:00:00Z", endedAt: "2026-01-01T00:10:00Z" };
  const end = Date.parse(r.endedAt);
  expect(windowOf(r, end + 86_400_000).end * 1000).toBeLessThanOrEqual(end + 180_000);
  expect(windowOf(r, end + 20_000).end * 1000).toBeLessThanOrEqual(end + 20_000);
  const w = windowOf({ ...r, endedAt: null }, end);
  expect(w.start * 1000).toBeLessThan(Date.parse(r.startedAt));
  expect((w.end - w.start) / w.step).toBeLessThanOrEqual(151);
});

it("what came after a moment is cut off, and with it what was between two points around it", () => {
  const steps = [0, 60, 120].map((from) => ({ from, to: from + 60, least: 1, largest: 2, coverage: 1 }));
  expect(cutSteps(steps, 90).map((b) => b.to)).toEqual([60]);
  expect(cutSteps(steps, 120).map((b) => b.to)).toEqual([60, 120]);
  expect(cutSteps(steps, undefined)).toEqual(steps);
});

it("countdowns", () => {
  expect([countdown(42_000, 0), countdown(190_000, 0), countdown(3_700_000, 0), countdown(0, 5)]).toEqual(["in 42 s", "in 3 min 10 s", "in 1 h 1 min", "any moment"]);
});

it("kinds and filters", () => {
  expect([kindOfChange({ apiVersion: "apps/v1", kind: "Deployment" }), kindOfChange({ apiVersion: "v1", kind: "Secret" })]).toEqual(["Deployment.apps", "Secret"]);
  expect(parseRolloutFilter("?phase=Nope&state=all&q=web")).toEqual({ q: "web", state: "", phase: "" });
  expect(parseRolloutFilter("?phase=Paused&state=ended").phase).toBe("Paused");
});
