import AxeBuilder from "@axe-core/playwright";
import type { LinkPage } from "../src/api/types";
import { control, expect, get, login, MOCK, sites, test } from "./fixtures";

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

test("errors of a link are told apart by target and by what went wrong, and none are where none were", async ({ page }) => {
  await login(page);
  const { links } = await get<LinkPage>(page, "/api/v1/links?sort=-link.errors&limit=1000");
  const bad = links.find((l) => (l.errors ?? 0) > 0)!;
  const asked: string[] = [];
  page.on("request", (r) => {
    const q = new URL(r.url()).searchParams.get("query") ?? "";
    if (r.url().includes("query_range") && q.includes("request_errors_total")) asked.push(q);
  });
  await page.goto(`/connectivity/${bad.site}?tenant=${bad.tenant}`);
  const errors = page.locator("[data-chart=errors]");
  await expect(errors.locator(".link-legend li")).toHaveText(["logs refused", "push unreachable"]);
  await expect(errors.getByRole("img", { name: /\/min/ })).toBeVisible();
  await expect(errors).toContainText("Refused: HTTP status 4xx; failed: 5xx; unreachable: no answer.");
  expect(asked[0]).toContain("sum by (target, reason)");
  // The figure of the page's head is of the same requests.
  await expect(page.locator(".figures div", { hasText: "Errors" }).locator("dd")).toHaveText(new RegExp(`^${bad.errors! < 10 ? bad.errors!.toFixed(1).replace(".0", "(\\.0)?") : Math.round(bad.errors!)}`));
  // The same by hand: the expression is one click away.
  await errors.getByRole("link", { name: "Errors: open in Metrics" }).click();
  await expect(page).toHaveURL(/\/explore\?.*request_errors_total/);

  const good = links.find((l) => l.errors === 0)!;
  await page.goto(`/connectivity/${good.site}?tenant=${good.tenant}`);
  await expect(errors).toContainText("No request failed in this time.");
  await expect(errors.locator(".link-legend")).toHaveCount(0);
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
