import type { Locator } from "@playwright/test";
import { EXAMPLES } from "./routes.mjs";
import { control, expect, get, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "wants the mock's fleet");

/** Where the headings of several tables stand, a list a table. */
const columns = (tables: Locator) => tables.evaluateAll((all) => all.map((t) => [...t.querySelectorAll("thead th")].map((h) => Math.round(h.getBoundingClientRect().left))));

test.describe("looks", () => {
  for (const [page, tables] of [["/sites/:name/score", ".part table"], ["/virtual-hosts", ".host-table"]] as const) {
    test(`tables of the same columns stand below each other on ${page}`, async ({ page: p }) => {
      await login(p);
      await p.goto(await EXAMPLES[page]!.address((path) => get(p, path)));
      await expect.poll(() => p.locator(tables).count()).toBeGreaterThan(1);
      const all = await columns(p.locator(tables));
      for (const one of all) expect(one).toEqual(all[0]);
    });
  }

  for (const width of [1280, 1440, 1920, 2560]) {
    test(`the filters of alerts leave none over at ${width} px`, async ({ page }) => {
      await page.setViewportSize({ width, height: 900 });
      // As many as 10,000 sites have: the counts of few leave room for all filters anyway.
      await page.route("**/api/v1/alerts?**", async (r) => {
        const res = await r.fetch();
        await r.fulfill({ response: res, json: { ...(await res.json()), counts: { critical: 12_589, warning: 22_247, info: 21_855 } } });
      });
      await login(page, "/alerts");
      await expect(page.locator(".alert-counts b")).toHaveText(["12,589", "22,247", "21,855"]);
      const tops = await page.locator(".alert-filters > :is(input, select, .input, .select)").evaluateAll((all) => all.map((f) => Math.round(f.getBoundingClientRect().top)));
      expect(tops.length).toBeGreaterThan(3);
      expect(new Set(tops).size).toBe(1);
    });
  }

  test("how high a bar of log lines is stands at the top of the bars", async ({ page }) => {
    await login(page, "/logs?tenant=acme&range=24h");
    const bars = (await page.locator(".hist-bars").boundingBox())!;
    const label = (await page.locator(".hist-top").boundingBox())!;
    expect(label.y).toBeGreaterThanOrEqual(bars.y);
    expect(label.y + label.height).toBeLessThan(bars.y + bars.height / 2);
  });

  test("every figure of the load has its unit", async ({ page }) => {
    await login(page, "/load");
    const card = page.getByRole("region", { name: "CPU used" });
    await expect(card.getByText(/^Least [\d.]+%, 10th percentile [\d.]+%, median [\d.]+%, mean [\d.]+%, 90th percentile [\d.]+%, most [\d.]+%$/)).toBeVisible();
    expect(await card.locator(".load-bars small").allTextContents()).toEqual(["0%", "25%", "50%", "75%"]);
  });

  for (const page of ["/sites/:name", "/explore", "/alerts/:fingerprint"]) {
    test(`no table is cut on a phone on ${page}`, async ({ page: p }) => {
      await login(p);
      await p.setViewportSize({ width: 390, height: 844 });
      await p.goto(await EXAMPLES[page]!.address((path) => get(p, path)));
      await expect(p.locator(".table-wrap tbody tr").first()).toBeVisible();
      await expect(p.locator(".skeleton")).toHaveCount(0);
      const cut = await p.locator(".table-wrap").evaluateAll((all) => all.filter((t) => t.scrollWidth > t.clientWidth + 1).map((t) => t.getAttribute("aria-label")));
      expect(cut).toEqual([]);
    });
  }

  for (const page of Object.keys(EXAMPLES)) {
    test(`a phone shows the whole of ${page}, and nothing below it`, async ({ page: p }) => {
      await login(p);
      await p.setViewportSize({ width: 390, height: 844 });
      await p.goto(await EXAMPLES[page]!.address((path) => get(p, path)));
      await expect(p.locator("h1")).toBeVisible();
      await expect(p.locator(".skeleton")).toHaveCount(0);
      // What runs out of its cell stands over the next one.
      const cut = await p.locator(".stacks tbody :is(td, th)").evaluateAll((all) => all.filter((c) => c.scrollWidth > c.clientWidth + 1).map((c) => c.textContent));
      expect(cut).toEqual([]);
      const { wide, below } = await p.evaluate(() => ({
        wide: document.documentElement.scrollWidth,
        below: document.documentElement.scrollHeight - Math.max(innerHeight, scrollY + document.querySelector("main")!.getBoundingClientRect().bottom),
      }));
      expect(wide).toBe(390);
      expect(below).toBeLessThanOrEqual(1);
    });
  }

  for (const [page, column] of [["/virtual-sites", "Unhealthy"], ["/workloads", "Age"], ["/cost", "Cores"], ["/connectivity", "Loss"]] as const) {
    test(`a phone sorts the table of ${page}`, async ({ page: p }) => {
      await p.setViewportSize({ width: 390, height: 844 });
      await login(p, page);
      const head = p.getByRole("columnheader", { name: column, exact: true });
      await head.getByRole("button").click({ timeout: 5_000 });
      await expect(head).not.toHaveAttribute("aria-sort", "none");
    });
  }

  test("a command to copy is shown whole on a phone", async ({ page }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    await login(page, "/workloads?tenant=acme&in=lab/vk8s");
    const commands = page.locator(".command code");
    await expect(commands.last()).toContainText("apply -f app.yaml");
    expect(await commands.evaluateAll((all) => all.filter((c) => c.scrollWidth > c.clientWidth).map((c) => c.textContent))).toEqual([]);
  });

  test("the worst site of a virtual site has its whole name on a phone", async ({ page }) => {
    await login(page);
    await page.setViewportSize({ width: 390, height: 844 });
    await page.route("**/api/v1/health/virtualsites**", async (r) => {
      const res = await r.fetch();
      const json = (await res.json()) as { virtualSites: { worst: { site: string } | null }[] };
      for (const v of json.virtualSites) if (v.worst) v.worst.site = "san-francisco-161";
      await r.fulfill({ response: res, json });
    });
    await page.goto(await EXAMPLES["/virtual-sites/:namespace/:name"]!.address((path) => get(page, path)));
    const name = page.locator(".figures small").filter({ hasText: "san-francisco-161" });
    await expect(name).toBeVisible();
    expect(await name.evaluate((e) => e.scrollWidth - e.clientWidth)).toBeLessThanOrEqual(0);
  });

  for (const width of [1280, 1440, 2560]) {
    test(`names of sites are whole beside their tenant at ${width} px`, async ({ page }) => {
      await page.setViewportSize({ width, height: 900 });
      await login(page, "/sites");
      await expect(page.locator("[data-site] .inv-tenant").first()).toBeVisible();
      const cut = await page.locator("[data-site] .inv-name a").evaluateAll((all) => all.filter((a) => a.scrollWidth > a.clientWidth).map((a) => a.textContent));
      expect(cut).toEqual([]);
    });
  }

  for (const width of [1362, 1440, 1680, 1682]) {
    test(`that the data are stale does not cover the menu at ${width} px`, async ({ page }) => {
      await page.setViewportSize({ width, height: 900 });
      await control(page, "stop");
      await page.route("**/api/v1/sites?**", async (r) => {
        const res = await r.fetch();
        await r.fulfill({ response: res, json: { ...(await res.json()), asOf: new Date(Date.now() - 10 * 60_000).toISOString() } });
      });
      await login(page, "/policies");
      const live = page.locator("[data-live=stale]");
      await expect(live).toContainText("Stale");
      const chip = (await live.boundingBox())!;
      const last = (await page.locator(".topbar nav .nav-items > *").last().boundingBox())!;
      expect(last.x + last.width).toBeLessThanOrEqual(chip.x);
    });
  }

  test("the table of sites shows the score on a phone", async ({ page }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    await login(page, "/sites");
    const score = (await page.getByRole("columnheader", { name: "Score" }).boundingBox())!;
    expect(score.x + score.width).toBeLessThanOrEqual(390);
  });
});
