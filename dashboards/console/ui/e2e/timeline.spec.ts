import { control, expect, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the events are the mock's");

test("what happened: days, kinds, pages, all of it in the address", async ({ page }) => {
  await login(page);
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Timeline" }).click();
  const rows = page.locator("[data-event]");
  await expect(rows).toHaveCount(100);
  await expect(page.getByRole("heading", { name: "Today", level: 2 })).toBeVisible();
  const times = await rows.locator("time").evaluateAll((l) => l.map((t) => t.getAttribute("datetime")!));
  expect([...times].sort().reverse()).toEqual(times);

  await page.getByRole("button", { name: "Show older ones" }).click();
  await expect.poll(() => rows.count()).toBeGreaterThan(100);

  await page.getByRole("button", { name: "Edit", exact: true }).click();
  await expect(page).toHaveURL(/kind=policy/);
  await expect(rows).toHaveCount(2);
  await expect(rows.first()).toContainText("HealthPolicy strict was edited: signals, siteSelector · grace@example.com");
  await page.getByRole("button", { name: "Silence", exact: true }).click();
  await expect(page).toHaveURL(/kind=silence%2Cpolicy/);
  await expect(rows).toHaveCount(3);
  await page.reload();
  await expect(rows).toHaveCount(3);
  await page.getByLabel("Tenant").selectOption("globex");
  await expect(page.getByText("Nothing matches")).toBeVisible();
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect(rows).toHaveCount(100);
});

test("a time and a site, by name or by hand, all of it in the address", async ({ page }) => {
  await login(page, "/timeline?kind=policy");
  const rows = page.locator("[data-event]");
  const times = page.getByRole("group", { name: "Time range" });
  await expect(rows).toHaveCount(2); // three hours ago, and 27
  await times.getByRole("button", { name: "24 h" }).click();
  await expect(page).toHaveURL(/range=24h/);
  await expect(rows).toHaveCount(1);
  await times.getByRole("button", { name: "1 h", exact: true }).click();
  await expect(page.getByText("Nothing matches")).toBeVisible();
  await times.getByRole("button", { name: "7 d" }).click();
  await expect(rows).toHaveCount(2);
  await times.getByRole("button", { name: "Custom" }).click();
  await expect(page).toHaveURL(/from=.*Z&to=.*Z/);
  const from = page.getByRole("textbox", { name: "From" });
  const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 16).replace("T", " ");
  await from.fill("yesterday");
  await page.getByRole("button", { name: "Apply" }).click();
  await expect(page.getByText("from: want a time such as")).toBeVisible();
  await from.fill(day(3));
  await page.getByRole("textbox", { name: "To" }).fill(day(1));
  await page.getByRole("button", { name: "Apply" }).click();
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("VirtualSite shared/all-eu was edited");
  await page.reload();
  await expect(rows).toHaveCount(1);
  await page.goto("/timeline?kind=colour&tenant=acme");
  const name = (await rows.first().locator(".event-text a").textContent())!;
  await page.getByRole("combobox", { name: "Site", exact: true }).fill(name);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`site=${name}`));
  await expect(rows).toHaveCount(1);
});

test("a site's and a virtual site's timeline lead to all of it", async ({ page }) => {
  await login(page, "/timeline?kind=colour&tenant=acme");
  const site = page.locator("[data-event] .event-text a").first();
  const name = await site.textContent();
  await site.click();
  const panel = page.getByRole("region", { name: "Timeline" });
  await expect(panel.locator("[data-event=colour]").first()).toContainText("green →");
  await panel.getByRole("link", { name: "All of it" }).click();
  await expect(page).toHaveURL(new RegExp(`site=${name}`));
  await expect(page.getByText(`What happened at ${name}.`)).toBeVisible();
  await page.getByRole("button", { name: "All sites" }).click();
  await expect(page.locator("[data-event]")).toHaveCount(100);

  await page.goto("/virtual-sites/shared/all-eu?tenant=acme");
  await expect(page.getByRole("region", { name: "Timeline" }).locator("[data-event]")).toHaveCount(12);
});

test("a role that does not answer is named, and what it would have told", async ({ page }) => {
  await login(page);
  await control(page, "notimeline");
  await page.goto("/timeline");
  await expect(page.getByText("The alerting role at one:9107 has not answered yet")).toBeVisible();
  await expect(page.getByText("The alerting role at two:9107 does not answer")).toBeVisible();
  await expect(page.getByText("Alert, Notification, Silence may be missing.")).toHaveCount(2);
  await expect(page.locator("[data-event]").first()).toBeVisible();
  await control(page, "fail", { path: "/api/v1/timeline", status: 503, detail: "no role that keeps the timeline answers" });
  await page.reload();
  await expect(page.getByText("no role that keeps the timeline answers")).toBeVisible();
});
