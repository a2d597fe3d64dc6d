import type { Request } from "@playwright/test";
import { control, enter, expect, login, MOCK, mocked, sites, test } from "./fixtures";

mocked("what is looked at daily stands in the bar, the rest below Manage, by keyboard alone", async ({ page }) => {
  await login(page);
  const nav = page.getByRole("navigation", { name: "Main" });
  const manage = nav.getByRole("button", { name: /^Manage/ });
  await expect(nav.getByRole("link", { name: "Fleet" })).toHaveAttribute("aria-current", "page");
  await expect(nav.getByRole("link", { name: "Policies" })).toBeHidden();
  await manage.focus();
  await page.keyboard.press("Enter");
  await expect(manage).toHaveAttribute("aria-expanded", "true");
  await expect(nav.getByRole("link", { name: "Policies" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(nav.getByRole("link", { name: "Policies" })).toBeHidden();
  await expect(manage).toBeFocused();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(nav.getByRole("link", { name: "Policies" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/policies$/);
  await expect(nav.getByRole("link", { name: "Policies" })).toBeHidden();

  // Whoever leaves it has closed it.
  await manage.click();
  await expect(nav.getByRole("link", { name: "Policies" })).toHaveAttribute("aria-current", "page");
  await page.getByRole("heading", { level: 1 }).click();
  await expect(nav.getByRole("link", { name: "Policies" })).toBeHidden();
});

mocked("nothing of the menu is cut off or scrolls, however wide the window", async ({ page }) => {
  await login(page);
  for (const width of [1021, 1280, 1361, 1440, 1681, 2560]) {
    await page.setViewportSize({ width, height: 900 });
    const { right, rows } = await page.getByRole("navigation", { name: "Main" }).evaluate((nav) => {
      const of = [...nav.querySelectorAll(".nav-items > li")].map((e) => e.getBoundingClientRect());
      return { right: Math.max(...of.map((r) => r.right)), rows: new Set(of.map((r) => Math.round(r.top))).size };
    });
    const tools = await page.locator(".topbar .tools").evaluate((e) => ({ left: e.getBoundingClientRect().left, top: e.getBoundingClientRect().top, right: e.getBoundingClientRect().right }));
    const menu = (await page.getByRole("navigation", { name: "Main" }).boundingBox())!;
    expect(rows, `rows at ${width}`).toBe(1);
    expect(tools.right, `tools at ${width}`).toBeLessThanOrEqual(width);
    expect(right, `menu at ${width}`).toBeLessThanOrEqual(menu.y > tools.top + 10 ? width : tools.left);
  }
});

test("a site is found by its name alone, where it is the only one of those that one may see", async ({ page }) => {
  await login(page, "/tenants");
  const all = await sites(page);
  const one = all.find((s) => s.colour === "green" && all.filter((x) => x.name === s.name).length === 1)!;
  const whole = new RegExp(`[?&]tenant=${one.tenant}$`);
  for (const path of [`/sites/${one.name}`, `/sites/${one.name}/score`, `/sites/${one.name}/cost`, `/sites/${one.name}/signals/disk-used`, `/connectivity/${one.name}`]) {
    await page.goto(path);
    await expect(page, path).toHaveURL(whole);
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
    await page.goBack();
    await expect(page, path).toHaveURL(/\/tenants$/);
  }
  if (!MOCK) return;
  // What is done there shows there.
  await page.goto(`/sites/${one.name}`);
  await page.getByRole("button", { name: "Start maintenance…" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("new router");
  await page.getByRole("dialog").getByRole("button", { name: "Start maintenance" }).click();
  await expect(page.getByText("new router").first()).toBeVisible({ timeout: 5000 });

  const twin = one.tenant === "acme" ? "globex" : "acme";
  await control(page, "pend", { tenant: twin, name: one.name, phase: "Online" });
  await page.goto(`/sites/${one.name}`);
  await expect(page.getByRole("heading", { name: `Several tenants have a site ${one.name}` })).toBeVisible();
  await expect(page.getByRole("main").getByRole("listitem")).toHaveText([`acme/${one.name}`, `globex/${one.name}`]);
  await page.getByRole("link", { name: `${twin}/${one.name}` }).click();
  await expect(page).toHaveURL(new RegExp(`/sites/${one.name}\\?tenant=${twin}$`));
  await expect(page.getByRole("heading", { level: 1 })).toContainText(one.name);
  // Who may see one of them only is led to that one.
  await control(page, "tenants", { tenants: [one.tenant] });
  await page.goto(`/sites/${one.name}`);
  await expect(page).toHaveURL(whole);
  await page.goto("/sites/nowhere-1");
  await expect(page.getByRole("heading", { name: "There is no such site" })).toBeVisible();
});

mocked("on a phone one button opens it all", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await login(page);
  const nav = page.getByRole("navigation", { name: "Main" });
  const menu = nav.getByRole("button", { name: /^Menu/ });
  await expect(menu).toContainText(/\d/); // urgent alerts are seen without opening it
  await expect(nav.getByRole("link", { name: "Fleet" })).toBeHidden();
  await menu.click();
  await expect(nav.getByRole("link", { name: "Fleet" })).toBeVisible();
  await expect(nav.getByRole("link", { name: "Cost" })).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await nav.getByRole("link", { name: "Tenants" }).click();
  await expect(page).toHaveURL(/\/tenants$/);
  await expect(nav.getByRole("link", { name: "Fleet" })).toBeHidden();
  await menu.click();
  await expect(nav.getByRole("link", { name: "Tenants" })).toHaveAttribute("aria-current", "page");
});

mocked("a page that opens asks for nothing twice", async ({ page }) => {
  await enter(page);
  for (const [path, seen] of [["/", "[data-mark]"], ["/sites", ".inv-body .inv-row a"]] as const) {
    const asked: string[] = [];
    const note = (r: Request) => void (r.method() === "GET" && r.url().includes("/api/v1/") && asked.push(r.url()));
    page.on("request", note);
    await page.goto(path);
    await expect(page.locator(seen).first()).toBeVisible();
    await expect(page.locator("[data-live=live]")).toBeVisible();
    expect(asked.filter((u, i) => asked.indexOf(u) !== i)).toEqual([]);
    page.off("request", note);
  }
});

mocked("what is open in the bar stays so when the page comes", async ({ page }) => {
  let come = () => {};
  const coming = new Promise<void>((ok) => (come = ok));
  await page.route(/\/assets\/policies-.*\.js/, (r) => coming.then(() => r.continue()));
  await login(page);
  const nav = page.getByRole("navigation", { name: "Main" });
  const manage = nav.getByRole("button", { name: /^Manage/ });
  await manage.click();
  await nav.getByRole("link", { name: "Policies" }).click();
  await expect(page).toHaveURL(/\/policies$/);
  await manage.press("Enter");
  await expect(nav.getByRole("link", { name: "Cost" })).toBeVisible();
  come();
  await expect(page.getByRole("heading", { level: 1, name: "Health policies" })).toBeVisible();
  await expect(nav.getByRole("link", { name: "Cost" })).toBeVisible();
  await expect(manage).toBeFocused();
});

mocked("a page whose bundle is gone says so", async ({ page }) => {
  await enter(page);
  await page.route(/\/assets\/tenants-/, (r) => r.fulfill({ status: 404 }));
  await page.goto("/tenants");
  await expect(page.getByRole("alert")).toContainText("Could not load this page");
  await page.unroute(/\/assets\/tenants-/);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Tenants" })).toBeVisible();
});
