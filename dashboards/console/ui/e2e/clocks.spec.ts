import type { Page } from "@playwright/test";
import { enter, expect, get, login, MOCK, test } from "./fixtures";
import { EXAMPLES } from "./routes.mjs";

test.skip(!MOCK, "compares the same readings in two zones");

// A browser that has 12 hours of itself, and a zone that is half an hour off all whole ones.
const ZONE = "Asia/Kabul";
const AHEAD = 270;
test.use({ locale: "en-US", timezoneId: ZONE });

/** All that a page says: its text, what stands in its fields, what is told on pointing and to who can't see. What others wrote (YAML, code, lines of logs) is theirs. */
function said(page: Page): Promise<string[]> {
  return page.locator("body").evaluate((body) => {
    const theirs = "pre, code, textarea, script, style, .log-message, .topbar";
    const out: string[] = [];
    const walk = document.createTreeWalker(body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let n: Node | null = walk.currentNode; n; n = walk.nextNode()) {
      const e = n instanceof Element ? n : n.parentElement!;
      if (e.closest(theirs)) continue;
      if (n instanceof Text) out.push(n.data);
      else {
        for (const a of ["title", "aria-label", "placeholder", "aria-description"]) out.push(e.getAttribute(a) ?? "");
        if (e instanceof HTMLInputElement) out.push(e.value);
      }
    }
    return out.map((t) => t.trim()).filter(Boolean);
  });
}

/** Times of day in texts, in minutes. */
const clocks = (texts: readonly string[]): number[] => texts.flatMap((t) => [...t.matchAll(/(?<![\d:./-])(\d\d):([0-5]\d)(?::[0-5]\d(?:\.\d+)?)?(?![\d:])/g)].map((m) => 60 * Number(m[1]) + Number(m[2])));

/** Zones that are named after a time of day, or stand in a time as machines write it. */
const zones = (texts: readonly string[]): string[] => texts.flatMap((t) => [...t.matchAll(/\d\d:\d\d(?::\d\d)?(?:\.\d+)? ?(Z|UTC|GMT(?:[+-]\d+(?::\d+)?)?|[A-Z]{3,4}|[+-]\d\d:\d\d)(?![\w])/g)].map((m) => m[1]!));

const changeZone = (page: Page) => page.getByRole("button", { name: /^Times are in/ });

for (const [route, { address }] of Object.entries(EXAMPLES)) {
  test(`${route} has one zone and 24 hours`, async ({ page }) => {
    await enter(page);
    await page.goto(await address((path) => get(page, path)));
    await expect(page.getByRole("heading", { level: 1 }).first()).toBeVisible();
    await expect(page.locator(".skeleton")).toHaveCount(0);
    let times = -1;
    await expect.poll(async () => times === (times = clocks(await said(page)).length), { intervals: [500] }).toBe(true); // it has come to rest
    await expect(changeZone(page)).toHaveAttribute("title", `Times are in ${ZONE}`);
    const here = await said(page);
    await changeZone(page).click();
    await expect(changeZone(page)).toHaveAttribute("title", "Times are in UTC");
    await expect(page.locator(".skeleton")).toHaveCount(0);
    const utc = await said(page);
    for (const t of [...here, ...utc]) expect(t).not.toMatch(/\d\s?[AaPp]\.?[Mm]\b/);
    expect([...new Set(zones(here))].filter((z) => z !== "GMT+4:30")).toEqual([]);
    expect([...new Set(zones(utc))].filter((z) => z !== "UTC")).toEqual([]);
    // Each time of day moves by as much as the zones are apart; what ends now has moved on meanwhile, by minutes on a busy machine.
    const moved = clocks(utc).map((m) => m + AHEAD);
    expect(clocks(here).filter((h) => !moved.some((m) => (h - m + 2885) % 1440 <= 10))).toEqual([]);
  });
}

test("there are times to be compared", async ({ page }) => {
  await login(page, "/timeline");
  await expect(page.locator("time").first()).toBeVisible();
  expect(clocks(await said(page)).length).toBeGreaterThan(20);
});
