import type { Page } from "@playwright/test";
import type { LogPage } from "../src/api/types";
import { control, expect, get, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "wants the mock's lines");

const rows = (page: Page) => page.locator(".log-row");
const list = (page: Page) => page.locator(".log-list");
const search = (page: Page, q: string) => get<LogPage>(page, `/api/v1/logs/search?tenant=acme&limit=1000&${q}`);

test.describe("logs", () => {
  test("a search is in the address, finds its lines, and stays after a reload", async ({ page }) => {
    await login(page, "/");
    await page.getByRole("link", { name: "Logs" }).click();
    await expect(rows(page).first()).toBeVisible();
    await page.getByLabel("Query", { exact: true }).fill('"connection refused"');
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/query=%22connection\+refused%22/);
    await page.getByRole("group", { name: "Severity" }).getByRole("button", { name: "error" }).click();
    await expect(page).toHaveURL(/severity=error/);
    const { total } = await search(page, "from=now-1h&severity=error&query=%22connection+refused%22");
    // The hour of the one began a little before that of the other.
    const shown = async () => parseInt((await page.locator(".log-bar [role=status]").first().textContent()) ?? "", 10);
    await expect.poll(async () => Math.abs((await shown()) - total)).toBeLessThan(5);
    await page.reload();
    await expect(page.getByLabel("Query", { exact: true })).toHaveValue('"connection refused"');
    await expect(rows(page).first()).toContainText("connection refused");
    for (const t of await rows(page).allTextContents()) expect(t).toMatch(/error.*connection refused/);
    await page.goBack();
    await expect(page).not.toHaveURL(/severity/);
  });

  test("what is wrong with a query is said at the field", async ({ page }) => {
    await login(page, "/logs");
    await page.getByLabel("Query", { exact: true }).fill("colour:red");
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await expect(page.locator("#log-query-fault")).toContainText('there is no field "colour"');
    await expect(page.getByLabel("Query", { exact: true })).toHaveAttribute("aria-invalid", "true");
    const help = page.getByRole("button", { name: "How to write a query" });
    await help.click();
    await expect(page.getByRole("region", { name: "How to write a query" })).toContainText("NOT");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("region", { name: "How to write a query" })).toBeHidden();
    await expect(help).toBeFocused();
    await page.getByLabel("Query", { exact: true }).fill("refused");
    await page.keyboard.press("Enter");
    await expect(page.locator("#log-query-fault")).toBeEmpty();
    await expect(rows(page).first()).toContainText("refused");
  });

  test("a line opens by the keyboard, and its values narrow the search", async ({ page }) => {
    await login(page, "/logs?tenant=acme&query=refused");
    await rows(page).first().focus();
    await page.keyboard.press("ArrowDown");
    await expect(rows(page).nth(1)).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(rows(page).nth(1)).toHaveAttribute("aria-expanded", "true");
    const site = await page.locator(".log-fields tr", { has: page.getByRole("rowheader", { name: "site", exact: true }) }).locator("td").first().innerText();
    await page.getByRole("button", { name: `Filter for this value: site ${site}` }).click();
    await expect(page.getByLabel("Query", { exact: true })).toHaveValue(`refused AND site:${site}`);
    await expect(page.locator(".log-site").first()).toHaveText(site);
    expect(new Set(await page.locator(".log-site").allTextContents())).toEqual(new Set([site]));
    await rows(page).first().click();
    await page.getByRole("button", { name: `Leave out this value: site ${site}` }).click();
    await expect(page.getByLabel("Query", { exact: true })).toHaveValue(`refused AND NOT site:${site}`);
    await expect(page.locator(".log-site").first()).not.toHaveText(site);
  });

  test("bars narrow the time, by a click, a drag and the keyboard", async ({ page }) => {
    await login(page, "/logs?tenant=acme&range=24h");
    const bars = page.locator(".hist-bars");
    await expect(bars.getByRole("button").first()).toBeVisible();
    const box = (await bars.boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.75, box.y + 20, { steps: 4 });
    await page.mouse.up();
    await expect(page).toHaveURL(/from=.*&to=/);
    const span = () => {
      const q = new URL(page.url()).searchParams;
      return Date.parse(q.get("to")!) - Date.parse(q.get("from")!);
    };
    const dragged = span();
    expect(dragged).toBeGreaterThan(5 * 3600_000);
    expect(dragged).toBeLessThan(7.5 * 3600_000);
    await expect(page.getByRole("button", { name: "Custom", exact: true })).toHaveAttribute("aria-pressed", "true");
    await expect(page.getByLabel("From", { exact: true })).not.toHaveValue("");
    await expect(page.locator(".log-time")).toHaveAttribute("aria-busy", "false");
    const again = (await bars.boundingBox())!;
    await page.mouse.click(again.x + again.width * 0.5, again.y + 20);
    await expect.poll(span).toBeLessThan(dragged / 20);
    const clicked = span();
    await page.goBack();
    await expect.poll(span).toBe(dragged);
    await expect(page.locator(".log-time")).toHaveAttribute("aria-busy", "false");
    await bars.locator('button[tabindex="0"]').focus();
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Shift+ArrowLeft");
    await page.keyboard.press("Enter");
    await expect.poll(span).toBe(2 * clicked);
  });

  test("a range of one's own is asked for", async ({ page }) => {
    await login(page, "/logs?tenant=acme");
    await page.getByRole("button", { name: "Custom", exact: true }).click();
    // On a clock of 24 hours, whatever the browser's language.
    await expect(page.getByLabel("From", { exact: true })).toHaveValue(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    await page.getByLabel("From", { exact: true }).fill("yesterday");
    await page.getByRole("button", { name: "Apply" }).click();
    await expect(page.locator("#time-range-fault")).toContainText("from: want a time");
    await page.getByLabel("From", { exact: true }).fill("2026-01-02 03:04:05");
    await page.getByLabel("To", { exact: true }).fill("2026-01-01T00:00:00");
    await page.getByRole("button", { name: "Apply" }).click();
    await expect(page.locator("#time-range-fault")).toContainText("is before from");
    await page.getByLabel("To", { exact: true }).fill("2026-01-03T00:00:00");
    await page.getByRole("button", { name: "Apply" }).click();
    await expect(page).toHaveURL(/from=2026-01-0\dT/);
    await expect(page.getByRole("heading", { name: "No lines match" })).toBeVisible();
  });

  test("more lines are loaded, each once", async ({ page }) => {
    await login(page, "/logs?tenant=acme");
    await expect(page.getByText(/, 200 loaded/)).toBeVisible();
    await list(page).evaluate((l) => l.scrollTo({ top: l.scrollHeight }));
    await page.getByRole("button", { name: "Load more" }).click();
    await expect(page.getByText(/, 400 loaded/)).toBeVisible();
    expect(await rows(page).count()).toBeLessThan(100); // only those in sight
    await rows(page).first().focus();
    await page.keyboard.press("End");
    await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute("data-index"))).toBe("399");
  });

  test("regions that are missing are named, with the reason", async ({ page }) => {
    await control(page, "region", { region: "us-east", reason: "did not answer within 10s" });
    await login(page, "/logs?tenant=acme");
    await expect(page.getByText("1 region is missing")).toBeVisible();
    await expect(page.locator(".log-notes .note")).toContainText("us-east: did not answer within 10s");
    await control(page, "region", { region: "us-east" });
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await expect(page.locator(".log-notes .note")).toHaveCount(0);
  });

  test("a region that is late is not waited for, and its lines are added when they come", async ({ page }) => {
    await control(page, "region", { region: "us-east", late: true });
    let answer = () => {};
    const held = new Promise<void>((done) => (answer = done));
    await page.route(/logs\/search/, async (route) => {
      if (!new URL(route.request().url()).searchParams.has("patience")) await held;
      await route.continue();
    });
    await login(page, "/logs?tenant=acme");
    const note = page.locator(".log-notes .note");
    await expect(note).toContainText("us-east: has not answered yet, after 2s. Lines and figures are without it so far: still asking.");
    await expect(rows(page).first()).toBeVisible();
    const count = page.locator(".log-bar").getByText(/\d lines/);
    const before = await count.textContent();
    answer();
    await expect(note).toHaveCount(0);
    await expect(count).not.toHaveText(before ?? "");
    await control(page, "region", { region: "us-east" });
  });

  test("follows live, stands still while read, and goes on where it was", async ({ page }) => {
    await login(page, "/logs?tenant=acme");
    await page.getByRole("button", { name: "Live tail" }).click();
    await expect(page).toHaveURL(/live=1/);
    await expect(page.locator("[data-tail=live]")).toBeVisible();
    await control(page, "log", { message: "first live line", severity: "error", tenant: "acme" });
    await expect(rows(page).first()).toContainText("first live line");

    // Away from the top it stands still.
    await list(page).evaluate((l) => l.scrollTo({ top: 400 }));
    await expect(page.locator("[data-tail=paused]")).toBeVisible();
    await control(page, "log", { message: "while reading {i}", site: "paris-01", tenant: "acme", count: 3 });
    await expect(page.getByRole("button", { name: "Show 3 new lines" })).toBeVisible();
    await expect(page.getByText("while reading")).toHaveCount(0);
    await page.getByRole("button", { name: "Show 3 new lines" }).click();
    await expect(rows(page).first()).toContainText("while reading 3");
    await expect(page.locator("[data-tail=live]")).toBeVisible();

    // A connection that is lost is taken up with the last id: what came meanwhile is not lost.
    const taken = page.waitForRequest((r) => r.url().includes("/logs/tail") && r.headers()["last-event-id"] !== undefined);
    await control(page, "droptails");
    await control(page, "log", { message: "while away", site: "paris-01", tenant: "acme" });
    await taken;
    await expect(rows(page).first()).toContainText("while away");
    await expect(page.getByText("while away")).toHaveCount(1);

    await page.getByRole("button", { name: "Live tail" }).click();
    await expect(page).not.toHaveURL(/live/);
    await expect(page.getByText("while away")).toHaveCount(1); // searched for
  });

  test("a region that fails during a tail is named", async ({ page }) => {
    await login(page, "/logs?tenant=acme&live=1");
    await expect(page.locator("[data-tail=live]")).toBeVisible();
    await control(page, "region", { region: "eu-west", reason: "connection refused" });
    await expect(page.locator(".log-notes .note")).toContainText("eu-west: connection refused");
    await control(page, "region", { region: "eu-west" });
    await expect(page.locator(".log-notes .note")).toHaveCount(0);
  });

  test("a live view keeps a bounded number of lines", async ({ page }) => {
    await login(page, "/logs?tenant=acme&live=1&query=burst");
    await expect(page.locator("[data-tail=live]")).toBeVisible();
    await control(page, "log", { message: "burst {i}", site: "paris-01", tenant: "acme", count: 2500 });
    await expect(rows(page).first()).toContainText("burst 2500");
    await expect(rows(page).first().locator("xpath=..")).toHaveAttribute("aria-setsize", "2000");
    expect(await rows(page).count()).toBeLessThan(100);
  });

  test("what can't be had is said in words", async ({ page }) => {
    await control(page, "fail", { path: "/api/v1/logs", status: 503, title: "Service Unavailable", detail: "this console has no log search configured" });
    await login(page, "/logs");
    await expect(page.getByRole("alert").filter({ hasText: "Logs can't be searched now" })).toContainText("muster regional");
    await control(page, "unfail");
    await page.getByRole("button", { name: "Try again" }).click();
    await expect(rows(page).first()).toBeVisible();
    // What was found stays in sight.
    await control(page, "fail", { path: "/api/v1/logs", status: 503, title: "Service Unavailable", detail: "no answer" });
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await expect(page.locator(".log-notes .note")).toContainText("what is shown is older");
    await expect(rows(page).first()).toBeVisible();
    await control(page, "unfail");
    await page.goto("/logs?tenant=umbrella");
    await expect(page.getByRole("alert").filter({ hasText: "You have no right to see logs here" })).toContainText('you may not read tenant "umbrella"');
  });

  test("an address without a tenant gets one at once, and going back leads out", async ({ page }) => {
    await login(page, "/sites");
    const first = (await get<{ tenants: string[] }>(page, "/api/v1/session")).tenants[0]!;
    await page.evaluate(() => history.pushState(null, "", "/logs?query=refused&range=24h"));
    await page.waitForURL(`**/logs?query=refused&tenant=${first}&range=24h`);
    await expect(rows(page).first()).toBeVisible();
    await page.goBack();
    await expect(page).toHaveURL(/\/sites/);
  });

  test("who reads one tenant need not choose it", async ({ page }) => {
    await control(page, "tenants", { tenants: ["globex"] });
    await login(page, "/logs");
    await expect(rows(page).first()).toBeVisible();
    await expect(page.getByLabel("Tenant", { exact: true })).toHaveCount(0);
  });
});
