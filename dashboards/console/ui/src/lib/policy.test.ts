import { describe, expect, it } from "vitest";
import type { HealthPolicySpec } from "../api/types";
import { changed, changesOf, faultOf, patchCommand, quantity, selection } from "./policy";

const spec: HealthPolicySpec = {
  signals: [
    { name: "cpu-used", dimension: "performance", query: "x", good: "60", bad: "90" },
    { name: "spool", dimension: "connectivity", query: "y", good: "64Mi", bad: "448Mi", weight: "2" },
  ],
};

describe("quantities", () => {
  it.each([["95", 95], ["0.5", 0.5], ["64Mi", 67_108_864], ["1500m", 1.5], ["-1", -1], ["1e3", 1000], ["2k", 2000]])("%s is %d", (text, n) => expect(quantity(text)).toBeCloseTo(n));
  it.each(["", "x", "1 2", "5%", "1Mb", undefined])("%s is none", (text) => expect(quantity(text)).toBeNaN());
});

describe("edits", () => {
  it("counts what differs, and only that", () => {
    expect(changesOf(spec, { "cpu-used": { bad: "80", good: "60", weight: "1" }, spool: { good: "65536Ki" } })).toEqual([{ index: 0, signal: "cpu-used", field: "bad", from: "90", to: "80" }]);
  });
  it("leaves the rest of the policy as it is", () => {
    const next = changed(spec, changesOf(spec, { spool: { bad: "1Gi" } }));
    expect(next.signals[0]).toEqual(spec.signals[0]);
    expect(next.signals[1]).toEqual({ ...spec.signals[1], bad: "1Gi" });
  });
  it("says what is wrong", () => {
    expect(faultOf(spec.signals[0]!, { bad: "many" })).toContain("bad: want a number");
    expect(faultOf(spec.signals[0]!, { bad: "60.0" })).toBe("good and bad must differ");
    expect(faultOf(spec.signals[0]!, { weight: "-1" })).toContain("weight");
    expect(faultOf(spec.signals[1]!, { bad: "1Gi" })).toBe("");
  });
  it("writes the patch, which tests that it is about the same signal", () => {
    expect(patchCommand("acme", "default", changesOf(spec, { spool: { bad: "1Gi", weight: "3" } }))).toBe(
      `kubectl patch healthpolicy default -n acme-system --type=json -p '[{"op":"test","path":"/spec/signals/1/name","value":"spool"},{"op":"add","path":"/spec/signals/1/bad","value":"1Gi"},{"op":"add","path":"/spec/signals/1/weight","value":"3"}]'`,
    );
  });
});

it("says who is selected", () => {
  expect(selection({})).toBe("all sites of the tenant");
  expect(selection({ matchLabels: { tier: "gold" }, matchExpressions: [{ key: "region", operator: "In", values: ["eu", "us"] }, { key: "gpu", operator: "DoesNotExist" }] })).toBe("sites with tier=gold, region in (eu, us), has no gpu");
});
