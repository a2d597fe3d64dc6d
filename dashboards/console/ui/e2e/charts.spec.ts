import type { Locator, Page } from "@playwright/test";
import type { SiteDetail } from "../src/api/types";
import { control, enter, expect, get, login, MOCK, sites, test } from "./fixtures";

test.skip(!MOCK, "the mock's own metrics");

async function broken(page: Parameters<typeof login>[0]): Promise<{ name: string; tenant: string }> {
  const all = await sites(page);
  const s = all.find((x) => x.colour === "green")!;
  await control(page, "break", { site: s.name, tenant: s.tenant, fault: "disk-full" });
  return s;
}

interface Stroke {
  x: number;
  top: number;
  bottom: number;
  colour: string;
}

/** What a canvas is marked with: lines straight down, and stretches that are tinted, in the pixels of the newest picture of its size. */
async function watchMarks(page: Page): Promise<(chart: Locator) => Promise<{ lines: Stroke[]; stretches: Stroke[]; width: number; height: number }>> {
  await page.addInitScript(() => {
    const at = window as unknown as { marked: Map<HTMLCanvasElement, { lines: Stroke[]; stretches: Stroke[] }> };
    at.marked = new Map();
    const of = (c: HTMLCanvasElement) => at.marked.get(c) ?? at.marked.set(c, { lines: [], stretches: [] }).get(c)!;
    const proto = CanvasRenderingContext2D.prototype;
    const { clearRect, fillRect, moveTo, lineTo, stroke } = proto;
    let [from, to] = [[0, 0], [0, 0]];
    proto.clearRect = function (x, y, w, h) {
      if (x === 0 && y === 0 && w >= this.canvas.width && h >= this.canvas.height) at.marked.set(this.canvas, { lines: [], stretches: [] }); // drawn anew
      clearRect.call(this, x, y, w, h);
    };
    proto.moveTo = function (x, y) {
      from = [x, y];
      moveTo.call(this, x, y);
    };
    proto.lineTo = function (x, y) {
      to = [x, y];
      lineTo.call(this, x, y);
    };
    proto.stroke = function (path?: Path2D) {
      // Marks are the ones that are drawn at three quarters of a colour.
      if (!path && this.globalAlpha === 0.75 && from[0] === to[0]) of(this.canvas).lines.push({ x: from[0]!, top: from[1]!, bottom: to[1]!, colour: String(this.strokeStyle) });
      if (path) stroke.call(this, path);
      else (stroke as () => void).call(this);
    };
    proto.fillRect = function (x, y, w, h) {
      if (Math.abs(this.globalAlpha - 0.12) < 0.001) of(this.canvas).stretches.push({ x, top: w, bottom: h, colour: String(this.fillStyle) });
      fillRect.call(this, x, y, w, h);
    };
  });
  return (chart) =>
    chart.locator("canvas").evaluate((c: HTMLCanvasElement) => ({ ...((window as unknown as { marked: Map<HTMLCanvasElement, { lines: Stroke[]; stretches: Stroke[] }> }).marked.get(c) ?? { lines: [], stretches: [] }), width: c.width, height: c.height }));
}

test("a signal has a chart with its bounds and with what happened", async ({ page }) => {
  const marksOf = await watchMarks(page);
  await login(page);
  const s = await broken(page);
  const ago = (minutes: number) => Date.now() - minutes * 60_000;
  const of = { tenant: s.tenant, site: s.name };
  await control(page, "happened", {
    events: [
      { ...of, time: ago(11 * 60), kind: "alert", severity: "warning", text: "DiskFilling fires: 91 %" },
      { ...of, time: ago(9 * 60), kind: "colour", severity: "critical", text: "green → red, score 31: the disk is full", before: "green", after: "red" },
      { ...of, time: ago(7 * 60), kind: "maintenance", text: "maintenance: new disk", after: "maintenance" },
      { ...of, time: ago(5 * 60), kind: "maintenance", text: "maintenance is over", before: "maintenance" },
      { ...of, time: ago(4 * 60), kind: "colour", severity: "good", text: "red → green, score 97", before: "red", after: "green" },
      { tenant: s.tenant, site: "elsewhere", time: ago(6 * 60), kind: "colour", severity: "critical", text: "of another site" },
    ],
  });
  const happened = ["DiskFilling fires: 91 %", "green → red, score 31: the disk is full", "maintenance: new disk", "maintenance is over", "red → green, score 97", "HealthPolicy strict was edited: signals, siteSelector"];
  await page.goto(`/sites/${s.name}?tenant=${s.tenant}`);
  // The score's chart has them too.
  const history = page.getByRole("region", { name: "History of the score" });
  await history.getByRole("button", { name: "24 h" }).click();
  const description = new RegExp(`^With [5-8] marks: .*${happened.slice(0, 5).join("; .* ")}`);
  await expect(history.getByRole("slider")).toHaveAccessibleDescription(description);
  await expect.poll(async () => (await marksOf(history)).lines.length).toBeGreaterThanOrEqual(6);
  await page.getByRole("region", { name: "Table of signals" }).getByRole("link", { name: "disk-used" }).click();
  await expect(page).toHaveURL(new RegExp(`/sites/${s.name}/signals/disk-used`));
  await expect(page.getByRole("heading", { level: 1, name: "disk-used" })).toBeVisible();
  const chart = page.getByRole("img", { name: /^disk-used of .* over the last 24 h, good at 70%, bad at 95%: now \d/ });
  await expect(chart).toBeVisible();
  await expect(chart.locator("canvas")).toBeVisible();

  // Each mark is told, is in the list, and is drawn where and in the colour that it ought to be.
  const slider = page.getByRole("slider", { name: /^disk-used of / });
  const list = page.getByRole("region", { name: "What happened in this time" });
  await expect(slider).toHaveAccessibleDescription(new RegExp(`^With 6 marks: \\d\\d? \\w+,? \\d\\d:\\d\\d ${happened.join("; \\d\\d? \\w+,? \\d\\d:\\d\\d ")}$`));
  await expect(list.locator("[data-event]")).toHaveCount(6);
  for (const text of happened) await expect(list).toContainText(text);
  await expect(list).not.toContainText("of another site");
  const colour = (name: string) => page.evaluate((n) => {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(${n})`;
    const ctx = document.createElement("canvas").getContext("2d")!;
    ctx.fillStyle = getComputedStyle(probe).color;
    probe.remove();
    return ctx.fillStyle;
  }, name);
  const [good, warn, bad, info] = await Promise.all(["--green", "--orange", "--red", "--accent"].map(colour));
  let drawn = await marksOf(chart);
  await expect.poll(async () => (drawn = await marksOf(chart)).lines.length).toBe(6);
  expect(drawn.lines.map((l) => l.colour)).toEqual([warn, bad, info, info, good, info]);
  // As far apart as the events are, and all of them as high as the chart.
  const x = drawn.lines.map((l) => l.x);
  const hour = (x[4]! - x[0]!) / 7;
  for (const [i, hours] of [0, 2, 4, 6, 7, 8].entries()) expect(Math.abs(x[i]! - x[0]! - hours * hour), happened[i]).toBeLessThan(hour / 10);
  for (const l of drawn.lines) expect(l.bottom - l.top).toBeGreaterThan(drawn.height / 2);
  expect(drawn.stretches).toHaveLength(1);
  expect(Math.abs(drawn.stretches[0]!.x - x[2]!)).toBeLessThan(1);
  expect(Math.abs(drawn.stretches[0]!.top - 2 * hour)).toBeLessThan(hour / 10);

  await page.getByRole("group", { name: "Marks in the chart" }).getByRole("button", { name: "Maintenance" }).click();
  await expect(slider).toHaveAccessibleDescription(/^With 4 marks: /);
  await expect.poll(async () => (await marksOf(chart)).lines.length).toBe(4);
  expect((await marksOf(chart)).stretches).toHaveLength(0);
  await page.getByRole("button", { name: "30 d", exact: true }).click();
  await expect(page).toHaveURL(/range=30d/);
  await expect(page.getByRole("img", { name: /over the last 30 d/ })).toBeVisible();
  await expect(page.getByRole("region", { name: "What happened in this time" }).getByText("HealthPolicy strict was edited").first()).toBeVisible();
  await page.getByRole("button", { name: "Edit", exact: true }).click();
  await expect(page.getByText("HealthPolicy strict was edited")).toHaveCount(0);
  const detail = await get<SiteDetail>(page, `/api/v1/health/sites/${s.name}?tenant=${s.tenant}`);
  await expect(page.getByRole("region", { name: "Query" })).toContainText(detail.signals.find((x) => x.name === "disk-used")!.query);
});

test("alerts stand as their routes group them, and a silenced group says so at once", async ({ page }) => {
  await login(page, "/alerts?tab=groups");
  const group = page.getByRole("region", { name: /^Group NetworkPolicyDenials/ }).first();
  await group.getByRole("button", { name: /^Silence/ }).click();
  await page.getByRole("dialog").getByLabel(/comment|why/i).fill("known");
  await page.getByRole("dialog").getByRole("button", { name: /^Silence/ }).click();
  await expect(group.getByText(/silenced/).first()).toBeVisible();
  await page.getByRole("link", { name: "Loudest rules" }).click();
  await expect(page.locator("[data-rule='NetworkPolicyDenials']")).toContainText("66");
});

test("an alert shows what its rule measures", async ({ page }) => {
  await login(page, "/alerts?q=DiskFull&tenant=acme");
  await page.locator("[data-alert] a").first().click();
  const card = page.getByRole("region", { name: "Expression" });
  await expect(card.getByRole("img", { name: /^What DiskFull measures at / })).toBeVisible();
  await expect(card).toContainText("> 90");
  await expect(card.getByRole("heading")).toHaveText(/^Now \d.* fires at > 90/); // the value
  await expect(page.getByText(/this rule sent \d+ notifications? in 24 h/)).toBeVisible();
});

test("Ctrl-K goes anywhere, / searches, and one switch has all times in UTC", async ({ page }) => {
  await login(page, "/cost");
  const s = (await sites(page))[0]!;
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await page.keyboard.press("Control+k");
  const box = page.getByRole("combobox", { name: "Site, virtual site, page or action" });
  await expect(box).toBeFocused();
  await box.fill(s.name);
  await expect(page.getByRole("option", { name: `${s.name} site of ${s.tenant}` })).toBeVisible();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`/sites/${s.name}`));
  // A page, by a part of its name; what stands on one of them, by arrow keys; and away again without going anywhere.
  for (const [typed, option, keys, path] of [["polic", "Policies page", [], /\/policies$/], ["alert", "Alerts by route page", ["ArrowDown"], /\/alerts\?tab=groups$/], ["deploy", "Deploy a workload page", [], /\/workloads\/deploy(\?|$)/]] as const) {
    await page.keyboard.press("Control+k");
    await box.fill(typed);
    for (const k of keys) await page.keyboard.press(k);
    await expect(page.getByRole("option", { name: option, exact: true })).toHaveAttribute("aria-selected", "true");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(path);
    await expect(box).toHaveCount(0);
  }
  await page.keyboard.press("Control+k");
  await box.fill("fleet");
  await page.keyboard.press("Escape");
  await expect(box).toHaveCount(0);
  await expect(page).toHaveURL(/\/workloads\/deploy(\?|$)/);

  // / goes to the search of the page, and is a character in it; where there is none it searches everything.
  for (const [path, role, name] of [["/alerts", "searchbox", "Search alerts"], ["/sites", "combobox", "Query"], ["/virtual-sites", "searchbox", "Search virtual sites"]] as const) {
    await page.goto(path);
    await expect(page.getByRole(role, { name })).toBeVisible();
    await page.keyboard.press("/");
    await expect(page.getByRole(role, { name })).toBeFocused();
    await expect(page.getByRole(role, { name })).toHaveValue("");
    await page.keyboard.press("/");
    await expect(page.getByRole(role, { name })).toHaveValue("/");
  }
  await page.goto("/tenants");
  await expect(page.getByRole("heading", { level: 1, name: "Tenants" })).toBeVisible();
  await page.keyboard.press("/");
  await expect(box).toBeFocused();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Times are in/ }).click();
  await expect(page.getByRole("button", { name: /^Times are in UTC/ })).toBeVisible();
});

test("a chart is read with the keyboard", async ({ page }) => {
  await login(page);
  const s = await broken(page);
  await page.goto(`/sites/${s.name}/signals/disk-used?tenant=${s.tenant}&range=1h`);
  const keys = page.getByRole("slider", { name: /disk-used of .*: a moment of it/ });
  await keys.focus();
  await expect(page.locator(".chart .value")).toBeVisible();
  const before = await keys.getAttribute("aria-valuetext");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await expect(keys).not.toHaveAttribute("aria-valuetext", before!);
  await expect(keys).toHaveAttribute("aria-valuetext", /^\d\d:\d\d:\d\d: .*%$/);
});

test("metrics: an address without a tenant gets one at once, and going back leads out", async ({ page }) => {
  await login(page, "/sites");
  const first = (await get<{ tenants: string[] }>(page, "/api/v1/session")).tenants[0]!;
  await page.evaluate(() => history.pushState(null, "", "/explore?query=up&range=6h"));
  await page.waitForURL(`**/explore?tenant=${first}&query=up&range=6h`);
  await expect(page.getByRole("img", { name: /^up over 6 h/ })).toBeVisible();
  await page.goBack();
  await expect(page).toHaveURL(/\/sites/);
  await page.goto("/explore?tenant=globex");
  await expect(page.getByLabel("Tenant")).toHaveValue("globex");
});

test("metrics: names are completed, a query is a link, and an error has a way out", async ({ page }) => {
  await login(page, "/explore");
  const box = page.getByRole("textbox", { name: "PromQL" });
  await box.pressSequentially("node_me");
  await expect(page.getByRole("option", { name: /node_memory_MemAvailable_bytes/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(box).toHaveValue("node_memory_MemAvailable_bytes");
  await box.pressSequentially('{si');
  await page.getByRole("option", { name: "site" }).click();
  await box.pressSequentially('="');
  await expect(page.getByRole("option", { name: /-\d\d$/ }).first()).toBeVisible();
  const site = await page.getByRole("listbox", { name: "Completions" }).getByRole("option").first().innerText();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await box.pressSequentially('"}');
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/explore\?.*query=node_memory/);
  await expect(page.getByRole("img", { name: /^node_memory_MemAvailable_bytes\{site=.* over 1 h: now \d.*GiB/ })).toBeVisible();
  await expect(page.getByRole("region", { name: "Table of series" })).toContainText(site.trim());
  await page.reload();
  await expect(page.getByRole("img", { name: /^node_memory_MemAvailable_bytes/ })).toBeVisible();
  await box.fill("sum(up");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert").filter({ hasText: "unclosed left parenthesis" })).toBeVisible();
  await expect(page.getByText("The figures before the fault are its line and column.")).toBeVisible();
  await box.fill("nothing_like_this");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "No series" })).toBeVisible();
});

test("a virtual site's page has its trend: mean, 10th percentile and worst", async ({ page }) => {
  await enter(page);
  await page.goto("/virtual-sites/shared/all-eu?tenant=acme");
  const trend = page.getByRole("region", { name: "Trend" });
  await expect(trend.getByRole("img", { name: /^Score of shared\/all-eu over the last 24 h: mean, 10th percentile and worst/ })).toBeVisible();
  await expect(trend.getByRole("listitem")).toHaveText([/Mean/, /10th percentile/, /Worst/]);
  await trend.getByRole("button", { name: "7 d" }).click();
  await expect(trend.getByRole("img", { name: /over the last 7 d/ })).toBeVisible();
});

test("a chart of 30 days shows an hour and a gap that no point falls into, or says that it can't", async ({ page }) => {
  await login(page);
  const s = (await sites(page)).find((x) => x.colour === "green")!;
  // The points end with now: half an hour after one of them is between two.
  const from = Math.floor(Date.now() / 1000) - 60 * 14_400 + 1800;
  await control(page, "moment", { site: s.name, tenant: s.tenant, signal: "disk-used", from, to: from + 3600, value: 97 });
  await control(page, "moment", { site: s.name, tenant: s.tenant, signal: "disk-used", from: from + 86_400, to: from + 97_200, value: null });
  await page.goto(`/sites/${s.name}/signals/disk-used?tenant=${s.tenant}&range=30d`);
  await expect(page.getByRole("img", { name: /over the last 30 d, .*highest 9\d(\.\d)?%; with gaps$/ })).toBeVisible();
  await expect(page.getByRole("region", { name: "Chart" })).toContainText("the columns go from the least to the largest value");
  await page.goto(`/explore?tenant=${s.tenant}&range=30d&query=${encodeURIComponent(`avg_over_time(node_load1{site="${s.name}"}[1d])`)}`);
  await expect(page.getByRole("region", { name: "Chart" })).toContainText(/What was between the points is not shown.*of at most 50,000,000/);
  await expect(page.getByRole("region", { name: "Series", exact: true })).toContainText("what was between them is not in it");
});
