import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** Axe that does not list what passes: on a page of many rows that takes half a minute. There are no frames here, so no second page to gather its results in. */
export const axe = (page: Page): AxeBuilder => new AxeBuilder({ page }).options({ resultTypes: ["violations"] }).setLegacyMode();

/** What axe finds, a line each. */
export async function faults(asked: AxeBuilder): Promise<string[]> {
  const { violations } = await asked.analyze();
  return violations.map((v) => `${v.impact} ${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 4).join(" | ")}`);
}
