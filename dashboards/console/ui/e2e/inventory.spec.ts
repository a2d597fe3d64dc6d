import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import type { SitePage } from "../src/api/types";
import { control, enter, expect, get, login, MOCK, type Site, sites, test } from "./fixtures";

test.skip(!MOCK, "the sites are the mock's");

const box = "Query";
const rows = ".inv-body .inv-row[data-site]";

test("a query narrows the table where the sites are, and the address holds it", async ({ page }) => {
  await login(page, "/sites");
  const total = page.getByTestId("inventory-total");
  await expect(total).toContainText("300 sites");
  // Never all of them: no answer to this page had more than a page of sites.
  const sizes: number[] = [];
  page.on("response", async (r) => {
    if (new URL(r.url()).pathname === "/api/v1/sites") sizes.push(((await r.json().catch(() => ({ sites: [] }))) as { sites?: unknown[] }).sites?.length ?? 0);
  });
  await page.getByRole("combobox", { name: box }).fill("colour=red tier=standard");
  await expect(page).toHaveURL(/q=colour%3Dred\+tier%3Dstandard/);
  const want = (await sites(page)).filter((s: Site) => s.colour === "red" && !s.name.endsWith("-01")).map((s) => s.name);
  expect(want.length).toBeGreaterThan(0);
  await expect(total).toContainText(`${want.length} of 300 sites`);
  await expect(page.locator(rows).first()).toContainText(want.sort()[0]!);
  await page.reload();
  await expect(page.getByRole("combobox", { name: box })).toHaveValue("colour=red tier=standard");
  await expect(total).toContainText(`${want.length} of 300 sites`);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(200);
});

test("what is wrong is said in place, and completion writes the rest", async ({ page }) => {
  await login(page, "/sites");
  const query = page.getByRole("combobox", { name: box });
  await expect(page.locator(rows).first()).toBeVisible();
  await query.fill("score<x");
  await expect(page.getByText("at character 7: score is a number")).toBeVisible();
  await expect(query).toHaveAttribute("aria-invalid", "true");
  await expect(page.locator(rows).first()).toBeVisible(); // the table before stays
  await query.fill("col");
  await expect(page.getByRole("option", { name: /^colour/ })).toBeVisible();
  await query.press("ArrowDown");
  await query.press("Enter");
  await expect(query).toHaveValue("colour");
  await query.pressSequentially("=re");
  await page.getByRole("option", { name: "red" }).click();
  await expect(query).toHaveValue("colour=red");
  await expect(page).toHaveURL(/q=colour%3Dred/);
  await query.fill("kidn=store");
  await expect(page.getByText("no site that you may read has a label kidn")).toBeVisible();
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
  await page.getByRole("button", { name: "Show all sites" }).click();
  await expect(query).toHaveValue("");
});

test("columns, order, groups and views", async ({ page }) => {
  await login(page, "/sites");
  await page.locator("summary", { hasText: "Columns" }).click();
  await page.getByRole("searchbox", { name: "Search columns" }).fill("label.tier");
  await page.getByRole("checkbox", { name: /tier/ }).check();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("columnheader", { name: "tier" })).toBeVisible();
  await page.getByRole("columnheader", { name: "Score" }).getByRole("button").click();
  await expect(page.getByRole("columnheader", { name: "Score" })).toHaveAttribute("aria-sort", "ascending");
  const worst = (await sites(page)).filter((s) => s.score !== null).sort((a, b) => a.score! - b.score! || (a.name < b.name ? -1 : 1))[0]!;
  await expect(page.locator(rows).first()).toContainText(worst.name);

  await page.getByRole("combobox", { name: "Group by" }).selectOption("label.tier");
  const group = page.locator("[data-group='flagship']");
  await expect(group).toBeVisible();
  await expect(page.locator(rows)).toHaveCount(0);
  await group.click();
  await expect(group).toHaveAttribute("aria-expanded", "true");
  await expect(page.locator(rows).first()).toContainText("-01");

  await page.locator("summary", { hasText: "Views" }).click();
  await page.getByRole("textbox", { name: "Name of the view" }).fill("Flagships");
  await page.getByRole("checkbox", { name: /^Share with all/ }).check();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByText("Flagships is saved")).toBeVisible();
  // A name that is taken is not replaced without a question.
  await page.getByRole("textbox", { name: "Name of the view" }).fill("Flagships");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByText(/there is a view "Flagships" already/)).toBeVisible();
  await page.getByRole("button", { name: "Replace Flagships" }).click();
  await expect(page.getByText("Flagships is saved")).toBeVisible();
  await page.goto("/sites");
  await expect(page.locator(rows).first()).toBeVisible();
  await page.locator("summary", { hasText: "Views" }).click();
  await page.getByRole("list", { name: "Shared views" }).getByRole("button", { name: /^Flagships/ }).click();
  await expect(page).toHaveURL(/group=label.tier/);
  await expect(group).toBeVisible();
  await page.getByRole("button", { name: "Delete view Flagships" }).click();
  await expect(page.getByText("Flagships is deleted")).toBeVisible();
  await expect(page.getByRole("list", { name: "Shared views" })).toHaveCount(0);
});

/** A fleet of ten thousand; what is asked for of it is noted. */
async function ten(page: Page): Promise<{ limit: number; cursor: number }[]> {
  const asked: { limit: number; cursor: number }[] = [];
  const names = Array.from({ length: 10_000 }, (_, i) => `site-${String(i).padStart(5, "0")}`);
  const asOf = new Date().toISOString();
  const counts = { green: 0, orange: 0, red: 10_000, grey: 0 };
  await page.route(/\/api\/v1\/sites\?/, (r) => {
    const p = new URL(r.request().url()).searchParams;
    const [cursor, limit] = [Number(p.get("cursor") ?? 0), Number(p.get("limit") ?? 100)];
    asked.push({ limit, cursor });
    const sites = names.slice(cursor, cursor + limit).map((name) => ({ name, tenant: "acme", colour: "red", score: 20, reason: "disk full", phase: "Online", lastSeen: asOf, maintenance: false, region: "eu", alerts: 1, version: "0.4.2" }));
    return r.fulfill({ json: { asOf, columns: [], readable: 10_000, total: 10_000, counts, sites, notes: [], ...(limit > 0 && cursor + limit < 10_000 ? { nextCursor: String(cursor + limit) } : {}) } });
  });
  return asked;
}

test("of 10,000 sites only the rows in sight are in the document, and the last is reached, by scrolling and by keyboard", async ({ page }) => {
  await login(page, "/policies");
  const asked = await ten(page);
  await page.goto("/sites");
  await expect(page.getByTestId("inventory-total")).toContainText("10,000 sites");
  await expect(page.getByRole("table", { name: "Sites" })).toHaveAttribute("aria-rowcount", "10001");
  await expect(page.locator(rows).first()).toContainText("site-00000");
  const inDocument = () => page.locator(".inv-body .inv-row").count();
  expect(await inDocument()).toBeLessThan(80);
  expect(asked.filter((a) => a.limit > 0).length).toBeLessThan(4); // not all of them for the first ones
  const scroll = (to: number) => page.locator(".inv-scroll").evaluate((e, f) => e.scrollTo(0, f * e.scrollHeight), to);
  await scroll(0.5);
  await expect(page.locator(rows).filter({ hasText: "site-05000" })).toBeInViewport();
  expect(await inDocument()).toBeLessThan(80);
  await scroll(1);
  await expect(page.locator(rows).last()).toContainText("site-09999");
  await expect(page.locator(rows).last()).toBeInViewport({ ratio: 1 });
  await expect(page.locator(rows).last()).toHaveAttribute("aria-rowindex", "10001");
  expect(await inDocument()).toBeLessThan(80);
  expect(Math.max(...asked.map((a) => a.limit))).toBeLessThanOrEqual(200);
  const pages = asked.filter((a) => a.limit > 0).map((a) => a.cursor);
  expect(new Set(pages).size).toBe(10_000 / Math.max(...asked.map((a) => a.limit)));

  // The same from the beginning, with keys alone.
  await page.reload();
  await expect(page.locator(rows).first()).toContainText("site-00000");
  const focused = () => page.evaluate(() => document.activeElement?.closest("[data-site]")?.getAttribute("data-site") ?? "");
  await page.getByRole("checkbox", { name: "Select all sites of the query" }).focus();
  for (let i = 0; i < 20 && (await focused()) === ""; i++) await page.keyboard.press("Tab");
  expect(await focused()).toBe("acme/site-00000");
  await expect(page.getByRole("region", { name: "Table of sites" })).toHaveAccessibleDescription(/Arrow keys, Home and End .* Space selects .* Enter opens .* Escape/);
  await expect(page.locator(".inv-keys")).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  expect(await focused()).toBe("acme/site-00002");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Space");
  const bar = page.getByRole("group", { name: "What is done to the selected sites" });
  await expect(bar).toContainText("1 of 10,000 sites selected");
  await expect(page.getByRole("checkbox", { name: "Select site-00001" })).toBeChecked();
  await page.keyboard.press("ArrowRight"); // from its box to its site
  await expect(page.getByRole("link", { name: "site-00001" })).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Space");
  await expect(bar).toContainText("2 of 10,000 sites selected");
  await expect(page.getByRole("checkbox", { name: "Select site-00002" })).toBeChecked();
  await page.keyboard.press("Space");
  await expect(bar).toContainText("1 of 10,000 sites selected");
  await page.keyboard.press("Escape");
  await expect(bar).toHaveCount(0);
  await expect(page.getByRole("link", { name: "site-00002" })).toBeFocused();
  await page.keyboard.press("End");
  await expect(page.getByRole("link", { name: "site-09999" })).toBeFocused();
  await expect(page.locator(rows).last()).toBeInViewport({ ratio: 1 });
  await page.keyboard.press("ArrowDown"); // there is none below
  expect(await focused()).toBe("acme/site-09999");
  await page.keyboard.press("Home");
  await expect(page.getByRole("link", { name: "site-00000" })).toBeFocused();
  // From the query to the rows is one way: no row but one is in the order of Tab.
  expect(await page.locator('.inv-body :is(a, button, input):not([tabindex="-1"])').count()).toBe(2);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/sites\/site-00001\?tenant=acme/);
});

test("groups of sites are opened and gone through by keys", async ({ page }) => {
  await login(page, "/sites?group=region");
  const groups = page.locator(".inv-body [data-group]");
  await expect(groups.nth(2)).toBeVisible();
  const names = await groups.evaluateAll((all) => all.map((g) => g.getAttribute("data-group")!));
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-group") ?? document.activeElement?.closest("[data-site]")?.getAttribute("data-site") ?? "");
  await groups.first().focus();
  await page.keyboard.press("ArrowDown");
  await expect.poll(focused).toBe(names[1]);
  expect(await page.locator('.inv-body :is(a, button, input):not([tabindex="-1"])').count()).toBe(1); // one way through with Tab
  await page.keyboard.press("Enter");
  await expect(groups.nth(1)).toHaveAttribute("aria-expanded", "true");
  await expect(page.locator(rows).first()).toBeVisible();
  const first = (await page.locator(rows).first().getAttribute("data-site"))!;
  expect(await focused()).toBe(names[1]);
  await page.keyboard.press("ArrowDown");
  await expect.poll(focused).toBe(first);
  await expect(page.locator(rows).first().getByRole("link")).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect.poll(focused).toBe(names[1]);
  await page.keyboard.press("End");
  await expect.poll(focused).toBe(names.at(-1));
  await page.keyboard.press("Home");
  await expect.poll(focused).toBe(names[0]);
  await page.keyboard.press("Space"); // one is open at a time
  await expect(groups.first()).toHaveAttribute("aria-expanded", "true");
  await expect(page.locator(".inv-body [aria-expanded=true]")).toHaveCount(1);
});

test("who may only read is offered nothing that would be refused, and reads why", async ({ page }) => {
  await control(page, "lacking", { "patch sites.muster.dev": ["acme", "globex"], "create silences.muster.dev": ["globex"] });
  await login(page, "/sites?q=colour%3Dred+tenant%3Dacme");
  await expect(page.locator(rows).first()).toBeVisible();
  await page.getByRole("checkbox", { name: "Select all sites of the query" }).click();
  const bar = page.getByRole("group", { name: "What is done to the selected sites" });
  for (const name of ["Label…", "Maintenance…", "End maintenance…", "Approve…"]) {
    const button = bar.getByRole("button", { name, exact: true });
    await expect(button).toHaveAttribute("title", "You lack the right to patch sites.muster.dev in acme-system");
    await expect(button).toBeDisabled();
    await button.click({ force: true });
  }
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(bar).toContainText("You lack the right to patch sites.muster.dev in acme-system");
  await bar.getByRole("button", { name: "Silence…" }).click(); // which is allowed there
  await expect(page.getByRole("dialog")).toBeVisible();
});

test("many sites are labelled, put in maintenance and silenced at once, and what fails is named", async ({ page }) => {
  await login(page, "/sites?q=colour%3Dred+tenant%3Dacme");
  await expect(page.locator(rows).first()).toBeVisible();
  const all = page.getByRole("checkbox", { name: "Select all sites of the query" });
  await all.click();
  const bar = page.getByRole("group", { name: "What is done to the selected sites" });
  const reds = (await sites(page)).filter((s) => s.colour === "red" && s.tenant === "acme");
  await expect(bar).toContainText(`${reds.length} of ${reds.length} sites selected`);
  await control(page, "refuse", { site: reds[0]!.name, detail: 'sites.muster.dev is forbidden: User "ada" cannot patch it' });

  await bar.getByRole("button", { name: "Label…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Labels").fill("wave");
  await dialog.getByRole("button", { name: `Label ${reds.length} sites` }).click();
  await expect(dialog.getByText("wave: want KEY=VALUE")).toBeVisible();
  await dialog.getByLabel("Labels").fill("wave=first");
  await dialog.getByRole("button", { name: `Label ${reds.length} sites` }).click();
  await expect(dialog.getByText(`${reds.length - 1} sites were labelled`)).toBeVisible();
  await expect(dialog.getByText("cannot patch it")).toBeVisible();
  await dialog.getByRole("button", { name: "Keep these selected" }).click();
  await expect(bar).toContainText(`1 of ${reds.length} sites selected`);
  const labelled = await get<{ total: number }>(page, "/api/v1/sites?q=wave%3Dfirst&limit=0");
  expect(labelled.total).toBe(reds.length - 1);

  await page.getByRole("combobox", { name: box }).fill("wave=first");
  await expect(page.getByTestId("inventory-total")).toContainText(`${reds.length - 1} of 300`);
  await expect(bar).toHaveCount(0); // another query, another choice
  await all.click();
  await bar.getByRole("button", { name: "Maintenance…", exact: true }).click();
  await dialog.getByLabel("Reason").fill("new switches");
  await dialog.getByRole("button", { name: /^Start maintenance of/ }).click();
  await expect(page.locator(".inv-selection")).toContainText("put in maintenance");
  expect((await sites(page)).filter((s) => s.maintenance?.reason === "new switches").length).toBe(reds.length - 1);

  await all.click();
  await bar.getByRole("button", { name: "Silence…" }).click();
  await dialog.getByLabel("Comment").fill("being repaired");
  await dialog.getByRole("button", { name: /^Silence \d/ }).click();
  await expect(page.locator(".inv-selection")).toContainText("silenced");
  const { silences } = await get<{ silences: { comment: string; matchers: { name: string; value: string }[] }[] }>(page, "/api/v1/silences?tenant=acme");
  const mine = silences.filter((s) => s.comment === "being repaired");
  expect(mine.flatMap((s) => s.matchers.find((m) => m.name === "site")!.value.split("|")).length).toBe(reds.length - 1);
});

test("those that wait are approved at once, the others stay as they are, and what fails is named", async ({ page }) => {
  await enter(page);
  for (const [tenant, name, phase] of [["acme", "gate-1"], ["acme", "gate-2"], ["globex", "gate-3"], ["acme", "gate-4", "Decommissioned"], ["acme", "gate-5", "Online"]]) await control(page, "pend", { tenant, name, phase });
  const phases = async () => Object.fromEntries((await get<{ sites: { name: string; phase: string }[] }>(page, "/api/v1/sites?q=name%3Dgate-*&columns=phase")).sites.map((s) => [s.name, s.phase]));
  const waiting = async () => (await get<{ registrations: { name: string }[] }>(page, "/api/v1/registrations")).registrations.map((r) => r.name).filter((n) => n.startsWith("gate-")).sort();
  expect(await phases()).toEqual({ "gate-1": "Pending", "gate-2": "Pending", "gate-3": "Pending", "gate-4": "Decommissioned", "gate-5": "Online" });
  expect(await waiting()).toEqual(["gate-1", "gate-2", "gate-3"]);
  await control(page, "refuse", { site: "gate-2", detail: 'sites.muster.dev "gate-2" is forbidden: User "ada" cannot patch it' });
  await page.goto("/sites?q=name%3Dgate-*&columns=name,phase");
  await expect(page.locator(rows)).toHaveCount(5);
  const badge = page.getByRole("navigation", { name: "Main" }).getByRole("button", { name: /^Manage/ });
  await expect(badge).toContainText("5"); // two wait from the beginning
  await page.getByRole("checkbox", { name: "Select all sites of the query" }).click();
  const bar = page.getByRole("group", { name: "What is done to the selected sites" });
  await bar.getByRole("button", { name: "Approve…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("of 2 tenants");
  await expect(dialog).toContainText("Those that wait get a certificate at their next attempt");
  const asked: unknown[] = [];
  page.on("request", (r) => r.url().endsWith("/api/v1/sites:change") && asked.push((r.postDataJSON() as { approve: unknown }).approve));
  await dialog.getByRole("button", { name: "Approve 5 sites" }).click();
  await expect(dialog).toContainText("3 sites were approved. These were not:");
  await expect(dialog.getByRole("listitem").filter({ hasText: "gate-2" })).toContainText("cannot patch it");
  await expect(dialog.getByRole("listitem").filter({ hasText: "gate-4" })).toContainText("decommissioned, for good; delete the Site and register the machine anew");
  await dialog.getByRole("button", { name: "Keep these selected" }).click();
  await expect(bar).toContainText("2 of 5 sites selected");
  await expect(page.locator(rows).filter({ hasText: "gate-1" })).toContainText("Approved");
  await expect(badge).toContainText("3");
  expect(asked).toEqual([true]);
  expect(await phases()).toEqual({ "gate-1": "Approved", "gate-2": "Pending", "gate-3": "Approved", "gate-4": "Decommissioned", "gate-5": "Online" });
  expect(await waiting()).toEqual(["gate-2"]);
});

test("the table can be downloaded as it is seen: its query, columns and order", async ({ page }) => {
  await login(page, "/sites?q=colour%3Dred+tenant%3Dacme&columns=name,score,reason&sort=-score");
  await expect(page.locator(rows).first()).toBeVisible();
  const download = async (name: "CSV" | "JSON"): Promise<string> => {
    const [d] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name, exact: true }).click()]);
    expect(d.suggestedFilename()).toBe(`sites.${name.toLowerCase()}`);
    return readFile(await d.path(), "utf8");
  };
  const worst = (await sites(page)).filter((s) => s.colour === "red" && s.tenant === "acme").sort((a, b) => b.score! - a.score! || (a.name < b.name ? -1 : 1));
  expect(worst.length).toBeGreaterThan(3);
  const quoted = (v: string) => (/[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
  const lines = (await download("CSV")).trimEnd().split("\n");
  expect(lines[0]).toBe("name,score,reason");
  expect(lines.slice(1)).toEqual(worst.map((s) => [s.name, String(s.score), quoted(s.reasons[0]!.text)].join(",")));
  const { sites: all, total } = JSON.parse(await download("JSON")) as SitePage;
  expect(total).toBe(worst.length);
  expect(all).toEqual(worst.map((s) => ({ name: s.name, tenant: s.tenant, score: s.score, reason: s.reasons[0]!.text })));
  // What is on the page is in that order as well.
  await expect(page.locator(`${rows} .inv-name a`)).toHaveText(worst.map((s) => s.name));

  // Another query, another column.
  await page.locator("summary", { hasText: "Columns" }).click();
  await page.getByRole("searchbox", { name: "Search columns" }).fill("region");
  await page.getByRole("checkbox", { name: "Region region", exact: true }).check();
  await page.keyboard.press("Escape");
  const { name, region } = worst[0]!;
  await page.getByRole("combobox", { name: box }).fill(`name=${name}`);
  await expect(page.locator(rows)).toHaveCount(1);
  expect(await download("CSV")).toBe(`name,score,reason,region\n${[name, String(worst[0]!.score), quoted(worst[0]!.reasons[0]!.text), region].join(",")}\n`);
});

test("failing, empty, and none at all", async ({ page }) => {
  await login(page, "/sites");
  await expect(page.locator(rows).first()).toBeVisible();
  await control(page, "fail", { path: "/api/v1/sites", status: 503, title: "Service Unavailable" });
  await page.goto("/sites?q=name%3Dx");
  await expect(page.getByRole("alert").filter({ hasText: "Could not load the sites" })).toBeVisible();
  await control(page, "unfail");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
  await control(page, "empty");
  await page.goto("/sites");
  await expect(page.getByRole("heading", { name: "No sites yet" })).toBeVisible();
});
