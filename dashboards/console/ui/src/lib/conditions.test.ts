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
