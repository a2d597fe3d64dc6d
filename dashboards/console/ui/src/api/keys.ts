/** Keys of the query cache. */
export const keys = {
  login: ["login"] as const,
  tenants: ["tenants"] as const,
  session: ["session"] as const,
  fleet: ["fleet"] as const,
  virtualSites: ["virtualSites"] as const,
  /** Everything about one site. */
  siteKey: (key: string) => ["site", key] as const,
  siteHealth: (key: string) => ["site", key, "health"] as const,
  siteExplanation: (key: string, shadow: boolean) => ["site", key, "explanation", shadow] as const,
  siteObject: (key: string) => ["site", key, "object"] as const,
  siteHistory: (key: string, range: string) => ["siteHistory", key, range] as const,
  registrations: ["registrations"] as const,
  policies: ["policies"] as const,
  cost: (search: string) => ["cost", "list", search] as const,
  costNames: (key: string) => ["cost", "names", key] as const,
  logs: (search: string) => ["logs", search] as const,
  /** Everything that the alerting role says. */
  alerting: ["alerting"] as const,
  alertState: (scope: string) => ["alerting", "state", scope] as const,
  alerts: (search: string) => ["alerting", "alerts", search] as const,
  alertTotals: (search: string) => ["alerting", "totals", search] as const,
  alert: (tenant: string, fingerprint: string) => ["alerting", "alert", tenant, fingerprint] as const,
  allAlerts: (tenant: string) => ["alerting", "all", tenant] as const,
  silences: (search: string) => ["alerting", "silences", search] as const,
  virtualSiteWindows: (key: string) => ["virtualSiteWindows", key] as const,
};
