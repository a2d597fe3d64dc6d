import AxeBuilder from "@axe-core/playwright";
import { control, expect, login, MOCK, sites, test } from "./fixtures";

test.skip(!MOCK, "counts on the mock's sites");

test("links in a picture and one by one, by keyboard", async ({ page }) => {
  await login(page, "/connectivity");
  await expect(page.locator("[data-ready]")).toContainText(/links?, as of/);
  const regional = page.locator("[data-regional]").first();
  await expect(regional.locator("[data-group]").first()).toContainText("ms");
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);

  // A group narrows the page to its links.
  const group = regional.locator("[data-group] a").first();
  await group.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/connectivity\?q=regional%3D/);
  await expect(page.locator("[data-ready]")).toContainText(/^.*\d+ of [\d,]+ links/s);

  // A heading ranks them.
  const head = page.getByRole("columnheader", { name: "Round trip" });
  await head.getByRole("button").press("Enter");
  await expect(head).toHaveAttribute("aria-sort", "descending");
  const trips = async () => (await page.locator("[data-link] [data-label='Round trip']").allTextContents()).map((t) => Number.parseFloat(t)).filter((n) => !Number.isNaN(n));
  await expect.poll(async () => {
    const t = await trips();
    return t.length > 1 && t.every((v, i) => i === 0 || v <= t[i - 1]!);
  }).toBe(true);

  // A link leads to what went over it.
  await page.locator("[data-link] a").first().press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toContainText("↔");
  await expect(page.locator("[data-chart=requests]")).toContainText("push");
  await expect(page.locator("[data-chart=round-trip] .chart")).toBeVisible();
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  await page.getByRole("button", { name: "6 h" }).click();
  await expect(page).toHaveURL(/range=6h/);
});

test("what was between the points of a link's charts is seen, also where its lines are of what went wrong alone", async ({ page }) => {
  await login(page);
  const s = (await sites(page)).find((x) => x.colour === "green")!;
  // Points are twelve minutes apart and end with this minute.
  const from = (Math.floor(Date.now() / 60_000) - 60 * 12) * 60 + 500;
  await control(page, "moment", { site: s.name, tenant: s.tenant, signal: "link", from, to: from + 120, value: 7 });
  await page.goto(`/connectivity/${s.name}?tenant=${s.tenant}&range=24h`);
  await expect(page.locator("[data-chart=round-trip]").getByRole("img", { name: /highest 7\.?0* ?s/ })).toBeVisible();
  await expect(page.locator("[data-chart=errors]").getByRole("img", { name: /highest 7\/min/ })).toBeVisible();
  await expect(page.getByText("the columns go from the least to the largest value")).toHaveCount(1);
});

test("another grouping, more links, and a query that means none", async ({ page }) => {
  await login(page, "/connectivity");
  await page.getByLabel("Group by").selectOption("virtualSite");
  await expect(page).toHaveURL(/group=virtualSite/);
  await expect(page.locator("[data-group='shared/all-eu']").first()).toBeVisible();
  const rows = page.locator("[data-link]");
  await expect(rows).toHaveCount(50);
  await page.getByRole("button", { name: "Load more" }).click();
  await expect(rows).toHaveCount(100);
  await page.getByRole("combobox", { name: "Query" }).fill("region=nowhere");
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
});
