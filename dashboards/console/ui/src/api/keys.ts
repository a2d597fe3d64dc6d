/** Keys of the query cache. */
export const keys = {
  session: ["session"] as const,
  fleet: ["fleet"] as const,
  virtualSites: ["virtualSites"] as const,
  /** Everything about one site. */
  siteKey: (key: string) => ["site", key] as const,
  siteHealth: (key: string) => ["site", key, "health"] as const,
  siteObject: (key: string) => ["site", key, "object"] as const,
  siteHistory: (key: string, range: string) => ["siteHistory", key, range] as const,
  registrations: ["registrations"] as const,
  policies: ["policies"] as const,
};
