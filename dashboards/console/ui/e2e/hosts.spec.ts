import { axe, faults } from "./axe";
import { control, expect, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the virtual hosts are the mock's");

test("virtual hosts: the list, one of them with what its sites report, and back, by keyboard", async ({ page }) => {
  await login(page, "/virtual-hosts");
  const rows = page.locator("[data-host]");
  await expect(rows).toHaveCount(4);
  // What can't be reached comes first, with what is in the way.
  await expect(page.getByRole("region", { name: "Table of virtual hosts of acme" }).locator("[data-host]").first()).toContainText("make an AdvertisePolicy");
  await expect(page.locator('[data-host="shop/stock"]')).toContainText(/^.*stock-global:5432.*attempts? in an hour failed$/s);
  await expect(page.locator('[data-host="shop/prices"]').getByRole("cell").nth(3)).toHaveText(/(KiB|MiB)\/s/);
  expect(await faults(axe(page))).toEqual([]);

  await page.getByRole("link", { name: "shop/prices" }).press("Enter");
  await expect(page).toHaveURL(/\/virtual-hosts\/shop\/prices\?tenant=acme$/);
  await expect(page.getByRole("region", { name: "Served by" })).toContainText("price-list:80");
  await expect(page.getByRole("list", { name: "Routes" }).getByRole("listitem")).toHaveText(["api.example.com/ → price-api:80", "/offers → offers:80"]);
  await expect(page.locator("[data-policy=pilots]")).toContainText("there is no virtual site shop/kiosks");
  await page.getByRole("button", { name: "Serve it" }).press("Enter");
  await expect(page).toHaveURL(/part=provides/);
  const site = page.locator("[data-host-site]").first();
  await expect(site).toContainText("serves");
  await expect(page.locator("[data-host-link]").first()).toContainText(/\/s/);
  expect(await faults(axe(page))).toEqual([]);
});

test("a host that sites can't reach says why, on its page, on theirs and among the links", async ({ page }) => {
  await login(page, "/virtual-hosts/shop/stock?tenant=acme&part=consumes");
  await expect(page.locator("[data-host-site]").first()).toContainText("service stock: connection refused");
  await page.goto("/connectivity?tenant=acme");
  const links = page.locator("[data-host-links=acme]");
  await expect(links.locator("[data-host-link]")).toHaveCount(10);
  await links.getByRole("button", { name: "Show all 50" }).press("Enter");
  await expect(links.locator("[data-host-link]")).toHaveCount(50);
  await expect(links).toContainText("the 50 busiest of");
  const failing = links.locator("[data-failing]").first();
  await expect(failing).toContainText("could not reach shop/stock");
  await failing.getByRole("link").first().press("Enter");
  await expect(page.locator('[data-site-host="shop/stock"]')).toContainText("in an hour failed");
  await page.locator('[data-site-host="shop/stock"]').getByRole("link").press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toContainText("shop/stock");
});

test("what is searched for and whose is in the address", async ({ page }) => {
  await login(page, "/virtual-hosts?q=stock");
  const rows = page.locator("[data-host]");
  const search = page.getByRole("searchbox", { name: "Search virtual hosts" });
  await expect(rows).toHaveCount(1);
  await expect(search).toHaveValue("stock");
  await search.fill("shop/");
  await expect(page).toHaveURL(/\/virtual-hosts\?q=shop%2F$/);
  const found = await rows.evaluateAll((all) => all.map((r) => r.getAttribute("data-host")));
  expect(found.length).toBeGreaterThan(1);
  await page.getByRole("combobox", { name: "Tenant" }).selectOption("acme");
  await expect(page).toHaveURL(/q=shop%2F&tenant=acme$/);
  await page.reload();
  await expect(search).toHaveValue("shop/");
  await expect(page.getByRole("combobox", { name: "Tenant" })).toHaveValue("acme");
  await search.fill("nowhere");
  await expect(page.getByRole("heading", { name: "No virtual host matches" })).toBeVisible();
  await page.getByRole("button", { name: "Clear the search" }).click();
  await expect(page).toHaveURL(/\/virtual-hosts\?tenant=acme$/);
  // Going back leads out of the page, not through what was typed.
  await page.goto("/sites");
  await page.goBack();
  await expect(page).toHaveURL(/\/virtual-hosts\?tenant=acme$/);
});

test("no virtual hosts, one that is not there, and an API that fails", async ({ page }) => {
  await login(page, "/virtual-hosts/shop/none?tenant=acme");
  await expect(page.getByRole("heading", { name: "There is no such virtual host" })).toBeVisible();
  await control(page, "nohosts");
  await page.goto("/virtual-hosts");
  await expect(page.getByRole("heading", { name: "No virtual hosts yet" })).toBeVisible();
  await page.goto("/connectivity");
  await expect(page.locator("[data-ready]")).toBeVisible();
  await expect(page.locator("[data-host-links]")).toHaveCount(0);
  await control(page, "fail", { path: "/api/v1/virtualhosts", status: 503, title: "Service Unavailable", detail: "the API server can't list the virtual hosts; it may be starting" });
  await page.goto("/virtual-hosts");
  await expect(page.getByRole("alert")).toContainText("it may be starting");
});
