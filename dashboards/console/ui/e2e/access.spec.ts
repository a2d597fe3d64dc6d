import type { Page } from "@playwright/test";
import { axe, faults } from "./axe";
import { control, enter, expect, get, MOCK, sites, test } from "./fixtures";
import { EXAMPLES } from "./routes.mjs";

/** What a page of the routes shows only after something was done. */
const PAGES: Record<string, (page: Page) => Promise<void>> = {
  "sites in groups": async (p) => {
    await p.goto("/sites?group=region");
    await p.locator("[data-group]").first().click();
    await expect(p.locator(".inv-body [data-site]").first()).toBeVisible();
  },
  "sites, a wrong query": async (p) => {
    await p.goto("/sites?q=score%3Cx");
    await expect(p.getByText("at character 7")).toBeVisible();
  },
  "sites, many at once": async (p) => {
    await p.goto("/sites?q=score%3C60");
    await p.getByRole("checkbox", { name: "Select all sites of the query" }).click();
    await p.getByRole("button", { name: "Maintenance…", exact: true }).click();
    await expect(p.getByRole("dialog")).toBeVisible();
  },
  "policy, a preview": async (p) => {
    await p.goto("/policies/default?tenant=acme");
    await p.getByRole("button", { name: "Preview an edit" }).click();
    await p.getByRole("textbox", { name: "bad of disk-used" }).fill("72");
    await p.getByRole("button", { name: "Try on readings of now" }).click();
    await expect(p.getByRole("region", { name: "Result of now" })).toBeVisible();
  },
  "delete pod dialog": async (p) => {
    await p.goto("/workloads/shop/vk8s/Deployment.apps/web?tenant=acme");
    await p.getByRole("button", { name: /^Delete / }).first().click();
    await expect(p.getByRole("dialog")).toBeVisible();
  },
  "deploy, refused": async (p) => {
    await p.goto("/workloads/deploy?tenant=acme&in=shop%2Fvk8s");
    await p.getByRole("textbox", { name: /Objects as YAML/ }).fill("apiVersion: v1\nkind: Widget\nmetadata:\n  name: x\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n");
    await p.getByRole("button", { name: "Check" }).click();
    await expect(p.getByText("would be refused")).toBeVisible();
  },
  "rollout, promote dialog": async (p) => {
    await p.goto("/rollouts/shop/web-5b21c9d0?tenant=acme");
    await p.getByRole("button", { name: /^Promote/ }).click();
    await expect(p.getByRole("dialog")).toBeVisible();
  },
  "logs, a line": async (p) => {
    await p.goto("/logs");
    if (!MOCK) return;
    await p.locator(".log-row").nth(1).click();
    await expect(p.locator(".log-fields")).toBeVisible();
  },
  "logs, a wrong query": async (p) => {
    await p.goto("/logs?query=(&from=2026-01-01T00:00:00Z");
    await p.getByRole("button", { name: "How to write a query" }).click();
  },
  "map by version": async (p) => {
    await p.goto("/?by=version");
    await expect(p.locator("[data-mark]").first()).toBeVisible();
  },
  silences: async (p) => {
    await p.goto("/alerts?tab=silences&silences=all");
    if (MOCK) await expect(p.locator(".silence").first()).toBeVisible();
  },
  "silence dialog": async (p) => {
    await p.goto("/alerts");
    await p.getByRole("button", { name: "New silence…" }).click();
    await expect(p.getByRole("dialog")).toBeVisible();
  },
  "alerts in groups": (p) => p.goto("/alerts?tab=groups").then(() => undefined),
  "the loudest alerts": (p) => p.goto("/alerts?tab=loudest").then(() => undefined),
  "explore, no query": (p) => p.goto("/explore").then(() => undefined),
  "chart of a signal that is bad": async (p) => {
    const s = (await sites(p)).find((x) => x.colour === "green")!;
    await control(p, "break", { site: s.name, tenant: s.tenant, fault: "disk-full" });
    await p.goto(`/sites/${s.name}/signals/disk-used?tenant=${s.tenant}`);
  },
  "plan dialog": async (p) => {
    await p.goto("/virtual-sites");
    await p.locator("tbody th a").first().click();
    await p.getByRole("button", { name: "Plan…" }).click();
    await p.getByRole("button", { name: "Recurring" }).click();
  },
  "approve dialog": async (p) => {
    await p.goto("/registrations");
    await p.getByRole("button", { name: /^Approve/ }).first().click();
    await expect(p.getByRole("dialog")).toBeVisible();
  },
  "menu on a phone": async (p) => {
    await p.goto("/cost");
    await p.getByRole("button", { name: /^Menu/ }).click();
    await expect(p.getByRole("link", { name: "Tenants" })).toBeVisible();
  },
  "menu, Manage": async (p) => {
    await p.setViewportSize({ width: 1440, height: 900 });
    await p.goto("/cost");
    await p.getByRole("button", { name: /^Manage/ }).click();
    await expect(p.getByRole("link", { name: "Tenants" })).toBeVisible();
    await p.setViewportSize({ width: 390, height: 844 });
  },
  "not found": (p) => p.goto("/nowhere").then(() => undefined),
};

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
// What depends on colours: the rest of axe's rules read the same document in both themes.
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

// Of a real fleet those are asked whose text and length the fleet decides; the mock has been
// asked about every one.
const LIVE = ["/", "/sites", "/virtual-sites/:namespace/:name", "/sites/:name", "/sites/:name/cost", "/logs", "/alerts", "logs, a line"];

async function settled(page: Page): Promise<void> {
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.locator(".skeleton")).toHaveCount(0);
}

const ROUTES = Object.entries(EXAMPLES).map(([route, { address }]): [string, (page: Page) => Promise<void>] => [route, async (p) => p.goto(await address((path) => get(p, path))).then(() => settled(p))]);

for (const [name, open] of [...ROUTES, ...Object.entries(PAGES)].filter(([name]) => MOCK || LIVE.includes(name))) {
  test(`${name} has no accessibility faults that axe knows, and is no wider than a phone`, async ({ page }) => {
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await page.setViewportSize({ width: 390, height: 844 });
    await enter(page);
    await open(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    if (!name.includes("on a phone")) await page.setViewportSize({ width: 1440, height: 900 });
    expect(await faults(axe(page).withTags(TAGS))).toEqual([]);
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await faults(axe(page).withRules(OF_COLOURS)), "in the dark theme").toEqual([]);
  });
}
