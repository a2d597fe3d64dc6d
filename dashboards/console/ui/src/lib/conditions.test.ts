import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isWell } from "./conditions";

test.each<[string, "True" | "False" | "Unknown", boolean]>([
  ["Ready", "True", true],
  ["Ready", "False", false],
  ["LogsAccepted", "False", false],
  ["LogBudgetExceeded", "False", true],
  ["LogBudgetExceeded", "True", false],
  ["GatewayLimits", "False", true],
  ["GatewayLimits", "True", false],
  ["GatewayLimits", "Unknown", false],
  ["Ready", "Unknown", false],
])("%s=%s is well: %s", (type, status, want) => expect(isWell({ type, status })).toBe(want));

// Those that are named after a fault where they are made, of which each is well while it is False.
test.each<[string, RegExp]>([
  ["collector/status.go", /^\t(?!PolicyApplied)[A-Z]\w+ += "([A-Z]\w+)"$/gm],
  ["regional/logs/intake/metrics.go", /^\tCondition\w+ = "(\w+)"$/gm],
  ["control/agent/hostconfig/hostconfig.go", /^\tCondition\w+ += "(\w+)"$/gm],
  ["control/api/v1alpha1/sitereset.go", /^const Condition\w+ = "(\w+)"$/gm],
])("the conditions of %s are well while they are False", (file, name) => {
  const types = [...readFileSync(new URL(`../../../../../${file}`, import.meta.url), "utf8").matchAll(name)].map((m) => m[1]!);
  expect(types).not.toHaveLength(0);
  expect(types.filter((type) => !isWell({ type, status: "False" }))).toEqual([]);
});
