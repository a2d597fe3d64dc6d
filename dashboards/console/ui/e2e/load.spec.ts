import type { AlertRules } from "../src/api/types";
import { axe, faults } from "./axe";
import { control, expect, get, login, mocked, sites, test } from "./fixtures";

test("how loaded sites are: a sentence, and bars that open their sites", async ({ page }) => {
  await login(page, "/load");
  const memory = page.locator("[data-load=memoryUsed]");
  await expect(memory).toContainText(/Half of the sites .*use \d/);
  await expect(memory.locator(".load-ranked tr").first()).toContainText("%");
  expect(await faults(axe(page))).toEqual([]);
  await memory.locator("[data-bin='40']").focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/sites\?q=memoryUsed/);
  await expect(page.getByRole("combobox", { name: "Query" })).toHaveValue("memoryUsed>=40 memoryUsed<45");
});

test("a query chooses the sites", async ({ page }) => {
  await login(page);
  const region = (await sites(page)).find((s) => s.region)!.region;
  await page.goto(`/load?q=${encodeURIComponent(`region=${region}`)}`);
  await expect(page.locator("[data-ready]")).toContainText(/^\d+ of [\d,]+ sites/);
  await page.getByRole("combobox", { name: "Query" }).fill("region=nowhere");
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
});

mocked("a click makes the alert rule, once the API server has said that it would take it", async ({ page }) => {
  await login(page, "/load?tenant=acme");
  const memory = page.locator("[data-load=memoryUsed]");
  await memory.getByRole("button", { name: "Make an alert rule…" }).click();
  const dialog = page.getByRole("dialog", { name: "Alert rule: Memory used" });
  await dialog.getByLabel("Fires above").fill("85");
  await dialog.getByText("As YAML").click();
  const yaml = dialog.getByRole("region", { name: /Alert rule/ });
  await expect(yaml).toContainText("> 85");
  await expect(yaml).toContainText("namespace: acme-system");
  await expect(yaml).not.toContainText("site=~");
  expect(await faults(axe(page))).toEqual([]);
  const asked: { dryRun?: boolean; spec: { groups: { rules: { expr: string }[] }[] } }[] = [];
  page.on("request", (r) => r.method() === "POST" && r.url().includes("/api/v1/alertrules") && asked.push(r.postDataJSON() as (typeof asked)[0]));
  await dialog.getByRole("button", { name: "Make the rule" }).click();
  await expect(dialog).toBeHidden();
  const made = memory.locator("[data-made=site-memory-high]");
  await expect(made).toContainText("is in acme-system: every regional evaluates it");
  expect(asked.map((a) => a.dryRun ?? false)).toEqual([true, false]);
  expect(asked[1]!.spec).toEqual(asked[0]!.spec);
  expect(asked[1]!.spec.groups[0]!.rules[0]!.expr).toMatch(/ > 85$/);
  expect((await get<AlertRules>(page, "/api/v1/alertrules/site-memory-high?tenant=acme")).rules).toBe(1);
  await expect(made.getByRole("link", { name: "Its alerts" })).toHaveAttribute("href", "/alerts?tenant=acme&q=SiteMemoryHigh");
  // A name is taken once: that is said at the field, once, and another one does.
  await memory.getByRole("button", { name: "Make an alert rule…" }).click();
  await dialog.getByRole("button", { name: "Make the rule" }).click();
  await expect(dialog.getByRole("alert")).toHaveText("acme-system has AlertRules of that name already; choose another");
  await expect(dialog.getByLabel("Name")).toHaveAttribute("aria-invalid", "true");
  await dialog.getByLabel("Name").fill("Site Memory");
  await expect(dialog.getByRole("alert")).toContainText("want lower-case letters");
  await dialog.getByLabel("Name").fill("site-memory-higher");
  await expect(dialog.getByRole("alert")).toHaveCount(0);
  await dialog.getByRole("button", { name: "Make the rule" }).click();
  await expect(memory.locator("[data-made=site-memory-higher]")).toBeVisible();
});

mocked("a rule of a selection names its sites, of the tenant that it is made for", async ({ page }) => {
  await login(page);
  const all = await sites(page);
  const region = all.find((s) => s.tenant === "globex" && s.region)!.region;
  const meant = all.filter((s) => s.tenant === "globex" && s.region === region).map((s) => s.name);
  await page.goto(`/load?q=${encodeURIComponent(`region=${region}`)}`);
  const cpu = page.locator("[data-load=cpuUsed]");
  await cpu.getByRole("button", { name: "Make an alert rule…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Tenant").selectOption("globex");
  await expect(dialog.getByRole("checkbox")).toBeChecked();
  await dialog.getByText("As YAML").click();
  const yaml = dialog.getByRole("region", { name: /Alert rule/ });
  await expect(yaml).toContainText(`{site=~"`);
  const named = /site=~"([^"]*)"/.exec((await yaml.textContent())!)![1]!.split("|");
  expect(named.sort()).toEqual(meant.sort());
  await dialog.getByRole("checkbox").uncheck();
  await expect(yaml).not.toContainText("site=~");
});

mocked("who may not make rules is told so, and has the YAML", async ({ page }) => {
  await login(page, "/load?tenant=acme");
  await control(page, "lacking", { "create alertrules.muster.dev": ["acme"] });
  await page.reload();
  const disk = page.locator("[data-load=diskUsed]");
  await disk.getByRole("button", { name: "Make an alert rule…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("alert")).toContainText("You lack the right to create alertrules.muster.dev in acme-system");
  await expect(dialog.getByRole("alert")).toContainText("Editors and administrators of acme have it");
  await expect(dialog.getByRole("button", { name: "Make the rule" })).toBeDisabled();
  await expect(dialog.getByRole("region", { name: /Alert rule/ })).toContainText("kind: AlertRules");
  await expect(dialog.getByRole("button", { name: "Copy" })).toBeVisible();
  expect((await page.request.post("/api/v1/alertrules?tenant=acme", { data: { name: "x", spec: { groups: [{ name: "g", rules: [{ alert: "A", expr: "up" }] }] } } })).status()).toBe(403);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  // A right that went while the page was open is only known when it is tried.
  await control(page, "lacking", {});
  await page.reload();
  await disk.getByRole("button", { name: "Make an alert rule…" }).click();
  await expect(dialog.getByRole("button", { name: "Make the rule" })).toBeEnabled();
  await control(page, "lacking", { "create alertrules.muster.dev": ["acme"] });
  await dialog.getByRole("button", { name: "Make the rule" }).click();
  await expect(dialog.getByRole("alert")).toContainText("You lack the right");
  await expect(dialog.getByRole("region", { name: /Alert rule/ })).toContainText("kind: AlertRules");
});
