import { expect, it } from "vitest";
import { nameable, nameFault, ruleName, ruleOf, sentenceOf, yamlOf } from "./load";

const known = { column: "memoryUsed", known: 10, unknown: 0, mean: 60, least: 10, p10: 20, median: 75.5, p90: 92, most: 99, bins: [] };

it("says how full they are, and of which", () => {
  expect(sentenceOf(known)).toBe("Half of the sites use 75.5% of the memory of their fullest node or more; a tenth 92% or more.");
  expect(sentenceOf({ ...known, unknown: 3 })).toContain("Half of the sites of which it is known use");
  expect(sentenceOf({ ...known, median: null, p90: null })).toBe("");
});

const COLUMNS = ["cpuUsed", "memoryUsed", "diskUsed"];

it("makes an alert rule, and the same as YAML", () => {
  const o = ruleOf("memoryUsed", 92)!;
  const rule = o.spec.groups[0]!.rules[0]!;
  expect(o.name).toBe("site-memory-high");
  expect(rule.expr).toMatch(/MemTotal_bytes > 0\)\)\) > 92$/);
  const yaml = yamlOf(o, "acme");
  expect(yaml).toContain("name: site-memory-high\n  namespace: acme-system\n");
  expect(yaml).toContain(`            ${rule.expr}\n`);
  expect(yaml).toContain(`summary: '{{ $labels.site }} uses {{ $value | printf "%.0f" }}% of the memory of a node'`);
  expect(ruleOf("score", 1)).toBeUndefined();
});

it("keeps a rule to the sites that are named, in every selector", () => {
  for (const column of COLUMNS) {
    const all = ruleOf(column, 80)!.spec.groups[0]!.rules[0]!.expr;
    const some = ruleOf(column, 80, "mine", ["a-1", "b-2"])!.spec.groups[0]!.rules[0]!.expr;
    const selectors = [...all.matchAll(/node_\w+/g)].length;
    expect(selectors).toBeGreaterThan(1);
    expect([...some.matchAll(/node_\w+\{site=~"a-1\|b-2"[,}]/g)].length).toBe(selectors);
    expect(some.replaceAll(/site=~"a-1\|b-2",?/g, "").replaceAll("{}", "")).toBe(all);
  }
  expect(nameable([])).toBe(false);
  expect(nameable(["a", "b"])).toBe(true);
  expect(nameable(Array.from({ length: 500 }, (_, i) => `kiosk-${i}`))).toBe(false);
});

it("knows a name that the API server takes", () => {
  for (const column of COLUMNS) expect(nameFault(ruleName(column))).toBe("");
  expect(ruleName("cpuUsed")).toBe("site-cpu-high"); // as the hint has it
  for (const good of ["a", "a.b-c", "9"]) expect(nameFault(good)).toBe("");
  for (const bad of ["", "A", "a_b", "-a", "a-", "a..b", "a.-b", "a".repeat(254)]) expect(nameFault(bad)).not.toBe("");
});
