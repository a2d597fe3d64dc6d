import { expect, it } from "vitest";
import { ruleOf, sentenceOf } from "./load";

const known = { column: "memoryUsed", known: 10, unknown: 0, mean: 60, least: 10, p10: 20, median: 75.5, p90: 92, most: 99, bins: [] };

it("says how full they are, and of which", () => {
  expect(sentenceOf(known)).toBe("Half of the sites use 75.5% of the memory of their fullest node or more; a tenth 92% or more.");
  expect(sentenceOf({ ...known, unknown: 3 })).toContain("Half of the sites of which it is known use");
  expect(sentenceOf({ ...known, median: null, p90: null })).toBe("");
});

it("makes an alert rule", () => {
  const rule = ruleOf("memoryUsed", 92);
  expect(rule).toContain("name: site-memory-high\n");
  expect(rule).toContain("MemTotal_bytes > 0)))\n            > 92\n");
  expect(rule).toContain(`summary: '{{ $labels.site }} uses {{ $value | printf "%.0f" }}% of the memory of a node'`);
});
