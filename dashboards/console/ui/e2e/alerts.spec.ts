import type { Page } from "@playwright/test";
import type { Alert, AlertList, AlertState, Silence } from "../src/api/types";
import { control, enter, expect, get, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "wants the mock's alerts");

const alerts = async (page: Page, q = "") => (await get<AlertList>(page, `/api/v1/alerts?limit=1000${q}`)).alerts;
const row = (page: Page, a: Alert) => page.locator(`[data-alert="${a.fingerprint}"]`);
const down = (path: string) => ({ path, status: 503, title: "Service Unavailable", detail: "the alerting role can't be reached; it may be starting" });

test.describe("alerts", () => {
  test("the badge counts what is critical or a warning", async ({ page }) => {
    await login(page);
    const s = await get<AlertState>(page, "/api/v1/alerts/state");
    await expect(page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: /^Alerts/ })).toContainText(String(s.firing.critical + s.firing.warning));
  });

  test("are listed the most severe first, counted and filtered, in the address", async ({ page }) => {
    await login(page, "/alerts");
    const all = await alerts(page);
    const rank = ["critical", "warning", "info"];
    await expect(page.locator("[data-alert]").first()).toBeVisible();
    const shown = await page.locator("[data-alert] .severity").evaluateAll((x) => x.map((e) => e.getAttribute("data-severity")!));
    expect(shown.map((s) => rank.indexOf(s))).toEqual(shown.map((s) => rank.indexOf(s)).sort());
    for (const s of rank) await expect(page.locator(`.alert-counts [data-severity=${s}] b`)).toHaveText(String(all.filter((a) => a.severity === s).length));

    await page.locator(".alert-counts [data-severity=warning]").click();
    await expect(page).toHaveURL(/severity=warning/);
    await expect(page.locator('[data-alert] .severity:not([data-severity="warning"])')).toHaveCount(0);
    await expect(page.locator(".alert-counts [data-severity=critical] b")).toHaveText(String(all.filter((a) => a.severity === "critical").length));
    await page.getByLabel("State", { exact: true }).selectOption("suppressed");
    const quiet = all.filter((a) => a.severity === "warning" && a.state === "suppressed");
    await expect(page.locator("[data-alert]")).toHaveCount(quiet.length);
    await page.reload();
    await expect(page.locator("[data-alert]")).toHaveCount(quiet.length);
    await page.getByLabel("State", { exact: true }).selectOption("all");
    await page.locator(".alert-counts [data-severity=warning]").click();
    await page.getByLabel("Search alerts").fill("no such thing anywhere");
    await expect(page.getByRole("heading", { name: "No alert matches" })).toBeVisible();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(page.locator("[data-alert]").first()).toBeVisible();
    await expect(page.getByLabel("Search alerts")).toHaveValue("");
    const one = all.find((a) => a.site)!;
    await page.getByLabel("Site", { exact: true }).fill(one.site);
    await page.keyboard.press("Enter");
    await expect(page.locator("[data-alert]")).toHaveCount(all.filter((a) => a.site === one.site).length);
  });

  test("come page by page", async ({ page }) => {
    await login(page, "/alerts");
    const all = await alerts(page);
    expect(all.length).toBeGreaterThan(100);
    await expect(page.locator("[data-alert]")).toHaveCount(100);
    await page.getByRole("button", { name: "Load more" }).click();
    await expect(page.locator("[data-alert]")).toHaveCount(all.length);
  });

  test("a new one shows by itself", async ({ page }) => {
    await login(page, "/alerts?q=SiteDown");
    await expect(page.locator("[data-alert]").first()).toBeVisible();
    const before = await page.locator("[data-alert]").count();
    const healthy = (await get<{ sites: { name: string; tenant: string; reasons: unknown[]; phase: string }[] }>(page, "/api/v1/health/sites?limit=1000")).sites.find((s) => s.reasons.length === 0 && s.phase === "Online")!;
    await control(page, "break", { tenant: healthy.tenant, site: healthy.name, fault: "uplink-down" });
    await expect(page.locator("[data-alert]")).toHaveCount(before + 1);
    await expect(page.locator("[data-alert]").first()).toContainText(healthy.name);
  });

  test("the runbook of an alert that ships is on its page, and has one of its own", async ({ page }) => {
    await enter(page);
    const { alerts } = await get<{ alerts: Alert[] }>(page, "/api/v1/alerts?q=SiteDown&limit=1");
    await page.goto(`/alerts/${alerts[0]!.fingerprint}?tenant=${alerts[0]!.tenant}`);
    const book = page.getByRole("region", { name: "Runbook" });
    await expect(book.getByText("No regional hears of the site")).toBeVisible();
    await expect(book.locator("ol > li").first()).toContainText("muster describe site NAME");
    await book.getByRole("link", { name: "Runbook" }).click();
    await expect(page.getByRole("heading", { level: 1, name: "SiteDown" })).toBeVisible();
    await page.goto("/runbooks/NothingOfOurs");
    await expect(page.getByRole("heading", { name: "There is no runbook NothingOfOurs" })).toBeVisible();
    // What is written in HTML stays text.
    const markdown = '<img src=x onerror="document.title=1"> <b>bold</b> [a](javascript:alert(1)) [b](https://example.com/)';
    await page.route("**/api/v1/runbooks/Evil", (r) => r.fulfill({ json: { alert: "Evil", markdown } }));
    await page.goto("/runbooks/Evil");
    await expect(page.getByText('<b>bold</b>')).toBeVisible();
    await expect(page.locator(".markdown :is(img, b)")).toHaveCount(0);
    await expect(page.locator(".markdown a")).toHaveCount(1);
  });

  test("one tells its labels, its runbook, its history, and leads to the logs", async ({ page }) => {
    await login(page, "/alerts");
    const a = (await alerts(page, "&state=active")).find((x) => x.site && x.labels.namespace)!;
    await page.goto(`/alerts/${a.fingerprint}?tenant=${a.tenant}`);
    await expect(page.getByRole("heading", { level: 1, name: a.name })).toBeVisible();
    const label = (k: string) => page.getByRole("region", { name: "Labels" }).locator("dt", { hasText: new RegExp(`^${k}$`) }).locator("xpath=following-sibling::dd");
    const { virtual_sites: within, ...others } = a.labels;
    for (const [k, v] of Object.entries(others)) await expect(label(k)).toHaveText(v);
    // They stand between bars for matchers alone.
    expect(within).toBe(`|${a.virtualSites.join("|")}|`);
    await expect(label("virtual_sites").getByRole("link")).toHaveText(a.virtualSites);
    await expect(label("virtual_sites")).not.toContainText("|");
    await expect(page.getByRole("link", { name: "Runbook", exact: true })).toHaveAttribute("href", a.annotations.runbook_url!);
    await expect(page.getByRole("region", { name: "Table of the times it fired" }).getByRole("row")).toHaveCount(7);
    await expect(page.getByText("still fires")).toBeVisible();
    await page.getByRole("link", { name: "Logs around its start" }).click();
    await expect(page).toHaveURL(new RegExp(`/logs\\?.*site=${a.site}`));
    const q = new URL(page.url()).searchParams;
    expect(Date.parse(q.get("from")!)).toBe(Date.parse(a.startsAt) - 600_000);
    await expect(page.getByLabel("Namespace", { exact: true })).toHaveValue(a.labels.namespace!);
    await page.goto("/alerts/0123456789abcdef");
    await expect(page.getByRole("heading", { name: "There is no such alert" })).toBeVisible();
  });

  test("one that is inhibited names what stands for it", async ({ page }) => {
    await login(page, "/alerts");
    const a = (await alerts(page)).find((x) => x.inhibitedBy.length > 0)!;
    await expect(row(page, a)).toContainText("inhibited");
    await row(page, a).getByRole("link", { name: a.name }).click();
    await page.getByRole("link", { name: a.inhibitedBy[0]! }).click();
    await expect(page.getByRole("heading", { level: 1, name: "SiteDown" })).toBeVisible();
  });

  test("is silenced from its page, and the silence is expired after a question", async ({ page }) => {
    await login(page, "/alerts");
    const a = (await alerts(page, "&state=active")).find((x) => x.site && x.labels.node)!;
    await page.goto(`/alerts/${a.fingerprint}?tenant=${a.tenant}`);
    await page.getByRole("button", { name: "Silence…" }).click();
    const dialog = page.getByRole("dialog");
    await expect(dialog.getByTestId("silence-count")).toHaveText("Fits 1 current alert");
    await dialog.getByRole("button", { name: "Silence", exact: true }).click();
    await expect(dialog.getByText("Say why")).toBeVisible();
    await dialog.getByLabel("Comment").fill("OPS-99");
    await dialog.getByRole("button", { name: "Custom" }).click();
    await dialog.getByLabel("Duration").fill("90x");
    await expect(dialog.getByText("Want a duration")).toBeVisible();
    await dialog.getByLabel("Duration").fill("90m");
    await dialog.getByRole("button", { name: "Remove matcher node" }).click();
    const sent = page.waitForRequest((r) => r.method() === "POST" && r.url().includes("/api/v1/silences"));
    await dialog.getByRole("button", { name: "Silence", exact: true }).click();
    const request = await sent;
    expect(new URL(request.url()).searchParams.get("tenant")).toBe(a.tenant);
    const eq = (name: string) => ({ name, value: a.labels[name], isRegex: false, isEqual: true });
    const more = Object.keys(a.labels).filter((k) => !["alertname", "site", "node", "tenant", "region", "severity", "virtual_sites"].includes(k));
    expect(request.postDataJSON()).toEqual({ matchers: [eq("alertname"), eq("site"), ...more.map(eq)], duration: "1h30m", comment: "OPS-99" });
    await expect(page.getByText("The silence lasts for 1 h 30 min")).toBeVisible();
    await expect(page.getByText("It tells nobody")).toBeVisible();

    await page.getByText("1 silence fits it").getByRole("link").click();
    const mine = page.locator(".silence", { hasText: "OPS-99" });
    await expect(mine).toContainText("ada@example.com");
    await mine.getByRole("button", { name: /^Expire/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await expect(mine).toHaveCount(1);
    await mine.getByRole("button", { name: /^Expire/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Expire" }).click();
    await expect(mine).toHaveCount(0);
    await page.getByRole("button", { name: "Expired" }).click();
    await expect(mine).toHaveAttribute("data-state", "expired");
    await expect(mine.getByRole("button")).toHaveCount(0);
  });

  test("groups come in the order that the page says, worked out from their alerts", async ({ page }) => {
    await login(page, "/alerts?tab=groups");
    const shown = page.locator("[data-group]");
    await expect(shown.first()).toBeVisible();
    // One silenced group, so that what tells nobody is told apart from what does.
    const { alerts: before } = await get<{ alerts: Alert[] }>(page, "/api/v1/alerts?limit=1000");
    const loud = before.find((a) => a.severity === "critical" && a.state === "active")!;
    const silence = { matchers: [{ name: "alertname", value: loud.name, isRegex: false, isEqual: true }], duration: "1h", comment: "known" };
    expect((await page.request.post(`/api/v1/silences?tenant=${loud.tenant}`, { data: silence })).status()).toBe(201);
    const { alerts } = await get<{ alerts: Alert[] }>(page, "/api/v1/alerts?limit=1000");
    const by = new Map<string, Alert[]>();
    for (const a of alerts) by.set(`${a.name} of ${a.tenant}`, [...(by.get(`${a.name} of ${a.tenant}`) ?? []), a]);
    const groups = [...by.values()];
    expect(groups.length).toBeGreaterThan(3);
    const firing = (g: Alert[], severity: string) => g.filter((a) => a.state === "active" && a.severity === severity).length;
    const newest = (g: Alert[]) => Math.max(...g.map((a) => Date.parse(a.startsAt)));
    const keys: Record<string, (g: Alert[]) => number[]> = {
      "Most severe": (g) => [firing(g, "critical"), firing(g, "warning"), firing(g, "info"), newest(g)],
      Newest: (g) => [newest(g)],
      Largest: (g) => [g.length, newest(g)],
    };
    const orders = new Set<string>();
    for (const [name, key] of Object.entries(keys)) {
      await page.getByRole("group", { name: "Order of groups" }).getByRole("button", { name }).click();
      await expect(page.getByRole("button", { name })).toHaveAttribute("aria-pressed", "true");
      const want = groups.map((g) => ({ key: key(g), of: `${g[0]!.name} of ${g[0]!.tenant}` }));
      want.sort((a, b) => a.key.map((v, i) => b.key[i]! - v).find((d) => d !== 0) ?? 0);
      const labels = () => shown.evaluateAll((all) => all.map((g) => /^Group (.*) to /.exec(g.getAttribute("aria-label")!)![1]!));
      await expect.poll(labels).toEqual(want.map((w) => w.of));
      orders.add((await labels()).join());
    }
    expect(orders.size).toBe(3); // else the fleet of this test tells no rule from another
    await page.reload();
    await expect(page.getByRole("button", { name: "Largest" })).toHaveAttribute("aria-pressed", "true");
  });

  test("several groups are silenced at once, and the page says so", async ({ page }) => {
    await login(page, "/alerts?tab=groups");
    const boxes = page.getByRole("checkbox", { name: /^Choose (?!all)/ });
    await expect(boxes.nth(1)).toBeVisible();
    const before = await boxes.count();
    const names: string[] = [];
    for (const i of [0, 1]) names.push((await boxes.nth(i).getAttribute("aria-label"))!.replace("Choose ", ""));
    for (const i of [0, 1]) await boxes.nth(i).check();
    await page.getByRole("button", { name: "Silence these 2 groups…" }).click();
    const dialog = page.getByRole("dialog", { name: "Silence 2 groups" });
    for (const n of names) await expect(dialog.getByRole("list", { name: "Groups to silence" })).toContainText(n);
    await dialog.getByRole("button", { name: "Make 2 silences" }).click();
    await expect(dialog.getByText("Say why")).toBeVisible();
    await dialog.getByLabel("Comment").fill("new switches, OPS-7");
    // The first one that fails leaves itself and those after it in the form.
    await control(page, "fail", { path: "/api/v1/silences", method: "POST", status: 403, title: "Forbidden", detail: "you may not create silences in tenant acme" });
    await dialog.getByRole("button", { name: "Make 2 silences" }).click();
    await expect(dialog.getByRole("alert").filter({ hasText: "you may not create silences" })).toBeVisible();
    await control(page, "unfail");
    await dialog.getByRole("button", { name: /^Make/ }).click();
    await expect(page.getByText("2 silences last for 1 h")).toBeVisible();
    // Another tenant's group may have the same name.
    for (const n of names) await expect(page.locator(`[data-group="${n}"]`, { hasText: "silenced or inhibited" }).first()).toBeVisible();
    await expect.poll(() => boxes.count()).toBeLessThanOrEqual(before - 2);
  });

  test("a silence of one's own tells what it would fit, and refuses to fit everything", async ({ page }) => {
    await login(page, "/alerts?tab=silences");
    await page.getByRole("button", { name: "New silence…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Tenant").selectOption("acme");
    await dialog.getByLabel("Value of site").fill("paris-.*");
    await dialog.getByLabel("Comparison of site").selectOption("=~");
    const fit = (await alerts(page, "&tenant=acme")).filter((a) => /^paris-.*$/.test(a.site)).length;
    await expect(dialog.getByTestId("silence-count")).toContainText(`Fits ${fit} current alert`);
    await dialog.getByLabel("Value of site").fill(".*");
    await dialog.getByLabel("Comment").fill("everything");
    await dialog.getByRole("button", { name: "Silence", exact: true }).click();
    await expect(dialog.getByText("this would silence every alert of the tenant")).toBeVisible();
    await dialog.getByLabel("Value of site").fill("(");
    await expect(dialog.getByText("not a regular expression")).toBeVisible();
  });

  test("a maintenance's silence can't be expired here", async ({ page }) => {
    await login(page, "/alerts?tab=silences");
    const { silences } = await get<{ silences: Silence[] }>(page, "/api/v1/silences?state=active");
    const m = silences.find((s) => s.maintenance)!;
    const item = page.locator(`[data-silence="${m.id}"]`);
    await expect(item).toContainText("maintenance");
    await expect(item.getByRole("button")).toHaveCount(0);
    await page.getByRole("button", { name: "Pending" }).click();
    await expect(page).toHaveURL(/silences=pending/);
    await expect(page.locator('.silence:not([data-state="pending"])')).toHaveCount(0);
  });

  test("that nothing is known is not shown as that nothing fires", async ({ page }) => {
    await control(page, "fail", down("/api/v1/alerts"));
    await login(page, "/alerts");
    await expect(page.getByRole("alert")).toContainText("The state of alerts is not known now");
    await expect(page.getByRole("alert")).toContainText("muster alerting");
    await expect(page.getByText("Nothing fires")).toHaveCount(0);
    await expect(page.locator(".badge.critical")).toHaveCount(0);
    await control(page, "unfail");
    await expect(page.locator("[data-alert]").first()).toBeVisible(); // by itself
    await control(page, "fail", { path: "/api/v1/silences", status: 403, title: "Forbidden", detail: "you may not read silences of tenant acme" });
    await page.getByRole("navigation", { name: "Alerts and silences" }).getByRole("link", { name: "Silences" }).click();
    await expect(page.getByRole("alert")).toContainText("get silences.muster.dev");
  });

  test("a silence of the installation's operators says so and until when, and can't be expired", async ({ page }) => {
    const id = "0c6f0b62-5b3c-4d0e-9d9a-3a4c2f6f7a10";
    await page.route("**/api/v1/silences?*", async (route) => {
      const answer = (await (await route.fetch()).json()) as { silences: Silence[] };
      answer.silences.push({ id, tenant: "", matchers: [], startsAt: new Date(Date.now() - 3600e3).toISOString(), endsAt: new Date(Date.now() + 2.1 * 3600e3).toISOString(), createdBy: "", comment: "", state: "active", maintenance: false });
      await route.fulfill({ json: answer });
    });
    await login(page, "/alerts?tab=silences");
    const item = page.locator(`[data-silence="${id}"]`);
    await expect(item.getByRole("heading")).toHaveText("Silenced by the installation’s operators");
    await expect(item).toContainText("ends in 2h");
    await expect(item).toContainText("keeps alerts of yours quiet");
    await expect(item).not.toContainText("every alert of the tenant");
    await expect(item.getByRole("button")).toHaveCount(0);
  });

  test("the silences of a maintenance of hundreds of sites are no list of hundreds, and each is still reached by its link", async ({ page }) => {
    const at = (i: number) => new Date(Date.now() - i * 60_000).toISOString();
    const many = Array.from({ length: 400 }, (_, i): Silence => ({ id: `s-${i}`, tenant: "acme", matchers: [{ name: "site", value: `paris-${i}`, isEqual: true, isRegex: false }], startsAt: at(i), endsAt: at(-60), createdBy: "muster-maintenance", comment: `maintenance of paris-${i}`, state: "active", maintenance: true }));
    await page.route("**/api/v1/silences?*", (route) => route.fulfill({ json: { silences: many } }));
    await login(page, "/alerts?tab=silences");
    await expect(page.getByRole("heading", { name: "400 silences" })).toBeVisible();
    await expect(page.locator("[data-silence]")).toHaveCount(50);
    await expect(page.locator("[data-silence]").first()).toHaveAttribute("data-silence", "s-0");
    await page.getByRole("button", { name: "Show all 400" }).click();
    await expect(page.locator("[data-silence]")).toHaveCount(400);
    await page.goto("/policies");
    await page.goto("/alerts?tab=silences#s-399");
    await expect(page.locator('[data-silence="s-399"]')).toBeInViewport();
  });

  test("a refusal to silence is shown in the dialog", async ({ page }) => {
    await control(page, "fail", { path: "/api/v1/silences", method: "POST", status: 403, title: "Forbidden", detail: "you may not create silences in tenant acme" });
    await login(page, "/alerts");
    await page.getByRole("button", { name: "New silence…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Value of alertname").fill("DiskFull");
    await dialog.getByLabel("Comment").fill("x");
    await dialog.getByRole("button", { name: "Silence", exact: true }).click();
    await expect(dialog.getByRole("alert").filter({ hasText: "you may not create silences" })).toBeVisible();
  });
});

test.describe("sites and virtual sites", () => {
  test("show what fires, and lead to the logs", async ({ page }) => {
    await login(page, "/alerts");
    const all = await alerts(page, "&state=active");
    const a = all.find((x) => x.site)!;
    await page.goto(`/sites/${a.site}?tenant=${a.tenant}`);
    const panel = page.getByRole("region", { name: "Firing alerts" });
    await expect(panel.locator("[data-alert]")).toHaveCount(Math.min(5, all.filter((x) => x.site === a.site && x.tenant === a.tenant).length));
    await panel.getByRole("link", { name: "Logs", exact: true }).click();
    await expect(page.getByLabel("Site", { exact: true })).toHaveValue(a.site);
    await page.goto("/virtual-sites/shared/all-eu?tenant=acme");
    await expect(panel.locator("[data-alert]")).toHaveCount(5);
    await panel.getByRole("link", { name: "All alerts" }).click();
    await expect(page.getByLabel("Virtual site", { exact: true })).toHaveValue("shared/all-eu");
  });

  test("maintenance is planned once and again and again, and removed", async ({ page }) => {
    await login(page, "/virtual-sites/shared/all-eu?tenant=acme");
    const card = page.getByRole("region", { name: "Planned maintenance" });
    await expect(card.locator("[data-window=core-router]")).toBeVisible();
    await card.getByRole("button", { name: "Plan…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(dialog.getByText("Say why")).toBeVisible();
    await dialog.getByLabel("Reason").fill("Monthly updates");
    await dialog.getByRole("button", { name: "Recurring" }).click();
    await dialog.getByLabel("Schedule").fill("61 2 * * ;");
    await expect(dialog.getByText("is not a field of cron's")).toBeVisible();
    await dialog.getByLabel("Schedule").fill("0 2 1 * *");
    await dialog.getByLabel("Time zone").fill("Europe/Berlin");
    await dialog.getByLabel("Duration").fill("1d");
    const sent = page.waitForRequest((r) => r.method() === "PUT");
    await dialog.getByRole("button", { name: "Plan", exact: true }).click();
    expect((await sent).postDataJSON()).toEqual({ reason: "Monthly updates", schedule: "0 2 1 * *", timeZone: "Europe/Berlin", duration: "24h" });
    await expect(card.locator("[data-window=monthly-updates]")).toContainText("Europe/Berlin, for 1 day");
    await card.getByRole("button", { name: "Remove core-router" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await expect(card.locator("[data-window=core-router]")).toHaveCount(0);

    const { sites } = await get<{ sites: { name: string; tenant: string }[] }>(page, "/api/v1/health/sites?limit=1&tenant=acme");
    await page.goto(`/sites/${sites[0]!.name}?tenant=${sites[0]!.tenant}`);
    await card.getByRole("button", { name: "Plan…" }).click();
    await dialog.getByLabel("Reason").fill("new switch");
    await dialog.getByLabel("Start").fill("2020-01-01 10:00");
    await dialog.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(dialog.getByText("it would be over already")).toBeVisible();
    await dialog.getByLabel("Start").fill("2099-01-01 10:00");
    await dialog.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(card.locator("[data-window=new-switch]")).toContainText("for 2 h");
  });
});
