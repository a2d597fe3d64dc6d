import { control, expect, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the figures are the mock's");

test("rooms, sorted rows, pages, and from a virtual site to a site to its metrics", async ({ page }) => {
  await login(page);
  await page.getByRole("navigation", { name: "Main" }).getByRole("button", { name: /^Manage/ }).click();
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Cost" }).click();
  const one = page.getByRole("article", { name: "Regional one" });
  await expect(one.getByText("About 900 more sites like its 150")).toBeVisible();
  await expect(one.getByText("memory ends first")).toBeVisible();
  await expect(page.getByRole("article", { name: "Regional two" }).getByText("No more sites like its 150")).toBeVisible();

  const rows = page.locator("[data-cost]");
  await expect(rows).toHaveCount(50);
  const cell = async (column: string) => (await rows.locator(`td[data-label="${column}"]`).allInnerTexts()).map((t) => Number(t.replaceAll(",", "")));
  const falling = (list: number[]) => list.every((v, i) => i === 0 || v <= list[i - 1]!);
  expect(falling(await cell("Series"))).toBe(true);
  await page.getByRole("button", { name: "Load more" }).click();
  await expect(rows).toHaveCount(100);

  await page.getByRole("button", { name: "Log lines/s" }).click();
  await expect(page).toHaveURL(/sort=lines/);
  await expect(page.getByRole("columnheader", { name: "Log lines/s" })).toHaveAttribute("aria-sort", "descending");
  await expect.poll(async () => falling(await cell("Log lines/s"))).toBe(true);

  await page.getByRole("button", { name: "Virtual sites" }).click();
  await page.getByRole("link", { name: "shared/all-eu" }).first().click();
  await expect(page).toHaveURL(/virtualSite=shared%2Fall-eu/);
  await expect(page.getByRole("button", { name: /Only shared\/all-eu/ })).toBeVisible();
  // The rows of before stand there until those of its sites come.
  await expect(rows.first().getByRole("link")).toHaveAttribute("href", /^\/sites\//);
  await rows.first().getByRole("link").click();
  await expect(page.getByRole("heading", { name: /^Cost of / })).toBeVisible();
  const metric = page.locator('[data-metric="container_cpu_usage_seconds_total"]');
  await expect(metric.getByText("spec.allow.patterns[0]")).toBeVisible();
  await expect(metric.getByText("debug-containers")).toBeVisible();
  await expect(page.locator('[data-metric="ALERTS"]').getByText("no collection policy")).toBeVisible();
});

test("the site's page leads there", async ({ page }) => {
  await login(page);
  await page.goto("/virtual-sites");
  await page.locator("tbody td a").first().click();
  await page.getByRole("link", { name: "cost", exact: true }).click();
  await expect(page.getByRole("region", { name: "Table of metrics" })).toBeVisible();
});

test("what came is shown, who is late is named, and is added when it comes", async ({ page }) => {
  await login(page);
  await page.route("**/api/v1/cost?**", async (route) => {
    const answer = await route.fetch();
    const json = (await answer.json()) as { missingRegions: unknown[] };
    if (new URL(route.request().url()).searchParams.get("patience")) json.missingRegions = [{ region: "two", reason: "has not answered yet, after 2s", late: true }];
    else await come;
    await route.fulfill({ response: answer, json });
  });
  let arrive = () => {};
  const come = new Promise<void>((ok) => (arrive = ok));
  await page.goto("/cost");
  await expect(page.getByText("The figures lack 1 regional so far: still asking")).toBeVisible();
  await expect(page.locator("[data-cost]").first()).toBeVisible();
  arrive();
  await expect(page.getByText("still asking")).toHaveCount(0);
  await expect(page.locator("[data-cost]").first()).toBeVisible();
});

test("a regional that does not answer is named; nothing found; no sites; a failure", async ({ page }) => {
  await login(page);
  await control(page, "missing", { region: "two", reason: "it can't be reached" });
  await page.goto("/cost");
  await expect(page.getByText("two: it can't be reached")).toBeVisible();
  await expect(page.getByRole("article", { name: "Regional two" })).toHaveCount(0);

  await page.getByRole("searchbox", { name: "Search by name" }).fill("no-such-name");
  await expect(page.getByText("Nothing matches")).toBeVisible();
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect(page.locator("[data-cost]").first()).toBeVisible();

  await control(page, "empty");
  await page.goto("/cost");
  await expect(page.getByText("There are no sites yet")).toBeVisible();

  await control(page, "fail", { path: "/api/v1/cost", status: 503, title: "Service Unavailable", detail: "the inventory of sites is not loaded yet" });
  await page.goto("/cost");
  await expect(page.getByText("the inventory of sites is not loaded yet")).toBeVisible();
  await control(page, "unfail");
  await page.getByRole("button", { name: /again/i }).click();
  await expect(page.getByText("There are no sites yet")).toBeVisible();
});

test("who sees one tenant sees no regional as a whole", async ({ page }) => {
  await control(page, "tenants", { tenants: ["acme"] });
  await login(page, "/cost?by=tenant");
  await expect(page.locator('[data-cost="acme"]').getByText("97")).toBeVisible();
  await expect(page.getByRole("article")).toHaveCount(0);
});
