import type { Condition } from "../api/types";

// Kubernetes has no word for whether True is good: most conditions say what works, and those that are named
// after a fault say that it is there.
const FAULT = /(Exceeded|Limits|Full|Filling|Down|Parked|Pressure|Unavailable|Failing|Failed|Refused|Doubtful|Lost|Degraded|Overdue|Drift|DryRun|Conflict)$/;

/** Whether a condition says that all is as it should be. One that is not known is not well. */
export const isWell = (c: Pick<Condition, "type" | "status">): boolean => c.status === (FAULT.test(c.type) ? "False" : "True");
