import type { AlertList, LogPage } from "../src/api/types";
import { expect, get, login, test } from "./fixtures";

// What whoever is on call does, against the mock and the real fleet alike.
test.describe("on call", () => {
  test("finds an alert, its history and the logs around its start", async ({ page }) => {
    await login(page, "/alerts?state=active");
    const all = (await get<AlertList>(page, "/api/v1/alerts?limit=1000&state=active")).alerts;
    const a = all.find((x) => x.site)!;
    await page.goto(`/alerts/${a.fingerprint}?tenant=${a.tenant}`);
    await expect(page.getByRole("heading", { level: 1, name: a.name })).toBeVisible();
    await expect(page.getByRole("region", { name: "Labels" })).toContainText(a.site);
    await expect(page.getByRole("region", { name: "Table of the times it fired" }).getByRole("row").nth(1)).toBeVisible();
    await page.getByRole("link", { name: "Logs around its start" }).click();
    await expect(page).toHaveURL(new RegExp(`/logs\\?.*site=${a.site}`));
    await expect(page.locator(".log-bar [role=status]").first()).toContainText(/line/);
  });

  test("silences an alert and ends the silence again", async ({ page }) => {
    await login(page, "/alerts");
    const a = (await get<AlertList>(page, "/api/v1/alerts?limit=1000&state=active")).alerts.find((x) => x.site)!;
    const comment = `on call ${Date.now()}`;
    await page.goto(`/alerts/${a.fingerprint}?tenant=${a.tenant}`);
    await page.getByRole("button", { name: "Silence…" }).click();
    const dialog = page.getByRole("dialog");
    await expect(dialog.getByTestId("silence-count")).toContainText(/Fits \d+ current alert/);
    await dialog.getByLabel("Comment").fill(comment);
    await dialog.getByRole("button", { name: "Silence", exact: true }).click();
    await expect(dialog).toHaveCount(0);
    await page.goto(`/sites/${a.site}?tenant=${a.tenant}`);
    await expect(page.getByRole("region", { name: "Firing alerts" }).getByRole("link", { name: /^\d+ silenced or inhibited$/ })).toHaveAttribute("href", /state=suppressed/);
    await page.goto("/alerts?tab=silences");
    const mine = page.locator(".silence", { hasText: comment });
    await expect(mine).toContainText(a.site);
    await mine.getByRole("button", { name: /^Expire/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Expire" }).click();
    await expect(mine).toHaveCount(0);
  });

  test("searches the logs and follows them", async ({ page }) => {
    await login(page, "/alerts");
    const tenant = (await get<AlertList>(page, "/api/v1/alerts?limit=1000&state=active")).alerts.find((x) => x.site)!.tenant;
    await page.goto(`/logs?tenant=${tenant}&severity=error&range=1h`);
    const rows = page.locator(".log-row");
    await expect(rows.first()).toBeVisible();
    for (const t of await rows.allTextContents()) expect(t).toContain("error");
    const site = (await get<LogPage>(page, `/api/v1/logs/search?tenant=${tenant}&from=now-1h&severity=error&limit=1`)).hits[0]!.site;
    await page.goto(`/logs?tenant=${tenant}&range=1h&query=${encodeURIComponent(`site:${site}`)}`);
    await expect(rows.first()).toBeVisible();
    expect(new Set(await page.locator(".log-site").allTextContents())).toEqual(new Set([site]));
    await rows.first().click();
    await expect(page.getByRole("button", { name: `Leave out this value: site ${site}` })).toBeVisible();
    await page.getByRole("button", { name: "Live tail" }).click();
    await expect(page.locator("[data-tail=live]")).toBeVisible();
  });
});
