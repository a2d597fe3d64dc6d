// Severities of log lines and alerts. Each level has a shape and a word besides its colour.

export type Level = "critical" | "error" | "warning" | "info" | "debug";

/** How a severity is shown; words that we don't know are shown as they are, without a level. */
export function levelOf(severity: string): Level | undefined {
  switch (severity.toLowerCase()) {
    case "critical": case "fatal": case "emergency": case "alert": case "panic": return "critical";
    case "error": case "err": return "error";
    case "warning": case "warn": return "warning";
    case "info": case "notice": case "information": return "info";
    case "debug": case "trace": return "debug";
    default: return undefined;
  }
}

export const ALERT_SEVERITIES = ["critical", "warning", "info"] as const;
export type AlertSeverity = (typeof ALERT_SEVERITIES)[number];
