/** Pages of the menu: address and name. What is looked at daily stands in the bar, what is set up now and then under Manage. */
export const DAILY: readonly (readonly [string, string])[] = [
  ["/", "Fleet"], ["/sites", "Sites"], ["/load", "Load"], ["/connectivity", "Connectivity"], ["/virtual-sites", "Virtual sites"], ["/workloads", "Workloads"], ["/rollouts", "Rollouts"], ["/alerts", "Alerts"],
  ["/timeline", "Timeline"], ["/logs", "Logs"], ["/explore", "Metrics"],
];
export const MANAGE: readonly (readonly [string, string])[] = [["/registrations", "Registrations"], ["/policies", "Policies"], ["/virtual-hosts", "Virtual hosts"], ["/tenants", "Tenants"], ["/cost", "Cost"]];

/** Whether a page is the one of a menu's entry, or below it. */
export const isAt = (location: string, href: string) => location === href || (href !== "/" && location.startsWith(`${href}/`));
