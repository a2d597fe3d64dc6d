import { enter, expect, get, login, MOCK, sites, test } from "./fixtures";

// What every fleet's pages do, whatever its figures: run against the mock and against a console that runs.

test("inventory: a query counts what the API counts, columns and groups are in the address", async ({ page }) => {
  await login(page, "/sites");
  const total = page.getByTestId("inventory-total");
  await expect(page.locator(".inv-body [data-site]").first()).toBeVisible();
  const some = (await sites(page)).find((s) => s.region)!;
  const query = page.getByRole("combobox", { name: "Query" });
  await query.fill(`region=${some.region}`);
  const { total: n } = await get<{ total: number }>(page, `/api/v1/sites?q=${encodeURIComponent(`region=${some.region}`)}&limit=0`);
  await expect(total).toContainText(new RegExp(`^${n} of [\\d,]+ sites`));
  await page.getByRole("columnheader", { name: "Score" }).getByRole("button").click();
  await expect(page).toHaveURL(/sort=score/);
  await query.fill("measured.disk");
  await page.getByRole("option", { name: /^measured\.disk-used/ }).click();
  await expect(query).toHaveValue("measured.disk-used");
  await page.goto("/sites?group=region");
  const group = page.locator("[data-group]").first();
  await group.click();
  await expect(page).toHaveURL(/open=/);
  await expect(page.locator(".inv-body [data-site]").first()).toBeVisible();
});

test("timeline: newest first, by kind, and from a site", async ({ page }) => {
  await login(page, "/timeline");
  const rows = page.locator("[data-event]");
  await expect(rows.first()).toBeVisible();
  const times = await rows.locator("time").evaluateAll((l) => l.map((t) => Date.parse(t.getAttribute("datetime")!)));
  expect([...times].sort((a, b) => b - a)).toEqual(times);
  await page.goto("/timeline?kind=colour");
  const site = rows.locator(".event-text a").first();
  const name = (await site.textContent())!;
  await site.click();
  await page.getByRole("region", { name: "Timeline" }).getByRole("link", { name: "All of it" }).click();
  await expect(page).toHaveURL(new RegExp(`site=${name}`));
  await expect(rows.first()).toBeVisible();
});

test("charts: of a signal with its bounds, and of any metric", async ({ page }) => {
  await enter(page);
  const s = (await sites(page)).find((x) => x.colour === "green" && x.name !== "this-machine")!;
  await page.goto(`/sites/${s.name}/signals/disk-used?tenant=${s.tenant}&range=1h`);
  const chart = page.getByRole("img", { name: /^disk-used of .* over the last 1 h, good at \d+%, bad at \d+%: now \d/ });
  await expect(chart.locator("canvas")).toBeVisible();
  await page.goto("/explore");
  const box = page.getByRole("textbox", { name: "PromQL" });
  await box.pressSequentially("node_memory_MemAvail");
  await page.getByRole("option", { name: /node_memory_MemAvailable_bytes/ }).click();
  await box.pressSequentially(`{site="${s.name}"}`);
  await page.keyboard.press("Escape"); // what is completed
  await page.keyboard.press("Enter");
  await expect(page.getByRole("img", { name: /^node_memory_MemAvailable_bytes\{.*over 1 h: .*now \d/ })).toBeVisible();
});

test("connectivity: from a group to its links, to one link", async ({ page }) => {
  await login(page, "/connectivity");
  await page.locator("[data-regional] [data-group] a").first().click();
  await expect(page).toHaveURL(/\/connectivity\?q=regional%3D/);
  await expect(page.locator("[data-ready]")).toContainText(/links?, as of/);
  await expect(page.locator("[data-link] [data-label=Regional]").filter({ hasText: "–" })).toHaveCount(0); // the list is the group's
  await page.locator("[data-link] a").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("↔");
  await expect(page.locator("[data-chart=round-trip] .chart")).toBeVisible();
  await expect(page.locator("[data-chart=requests]")).toContainText("push");
});

test("alerts: the most severe first, one with its rule, groups, the loudest", async ({ page }) => {
  await login(page, "/alerts");
  const alerts = page.locator("[data-alert]");
  await expect(alerts.first()).toBeVisible();
  const list = await get<{ alerts: { severity: string }[] }>(page, "/api/v1/alerts?limit=200");
  const rank = list.alerts.map((a) => ["critical", "warning", "info"].indexOf(a.severity));
  expect([...rank].sort((a, b) => a - b)).toEqual(rank);
  await alerts.locator("a").first().click();
  await expect(page.getByRole("region", { name: "Labels" })).toContainText("alertname");
  await expect(page.getByRole("region", { name: "History" })).toBeVisible();
  await page.goto("/alerts?tab=groups");
  await expect(page.locator("[data-group]").first()).toBeVisible();
  await page.goto("/alerts?tab=loudest");
  await expect(page.locator("[data-rule]").first()).toBeVisible();
});

test("policies: an edit is tried on what sites measure now", async ({ page }) => {
  await enter(page);
  const { policies } = await get<{ policies: { name: string; tenant: string; sites: number }[] }>(page, "/api/v1/health/policies");
  const p = policies.sort((a, b) => b.sites - a.sites)[0]!;
  await page.goto("/policies");
  await page.getByRole("link", { name: `${p.tenant}/${p.name}` }).or(page.getByRole("link", { name: p.name, exact: true })).first().click();
  await expect(page.locator("[data-policy-signal=disk-used]")).toBeVisible();
  await page.getByRole("button", { name: "Preview an edit" }).click();
  await page.getByRole("textbox", { name: "good of disk-used" }).fill("0.1");
  await page.getByRole("textbox", { name: "bad of disk-used" }).fill("0.2");
  await page.getByRole("button", { name: "Try on readings of now" }).click();
  const result = page.getByRole("region", { name: "Result of now" });
  await expect(result).toHaveAttribute("data-changed", /^[1-9]/); // all disks hold more than that
  await expect(result.locator("[data-tried]").first()).toBeVisible();
});

test("workloads: the list, one of them with its sites and their pods", async ({ page }) => {
  await login(page, "/workloads");
  const web = page.locator('[data-workload="Deployment/web"]').first();
  await expect(web.getByRole("img").first()).toBeVisible();
  await web.getByRole("link", { name: "web" }).click();
  await expect(page.getByRole("heading", { name: "web", level: 1 })).toBeVisible();
  const first = page.locator("[data-workload-site]").first();
  const name = (await first.getAttribute("data-workload-site"))!;
  await first.getByRole("button", { name: `Pods on ${name}` }).click();
  await expect(page.locator("[data-pod]").first()).toBeVisible();
  await expect(page.getByRole("region", { name: "Object" }).getByLabel("YAML")).toContainText("kind: Deployment");
});

test("logs: a query with an expression and a range finds what fits, and says what is wrong", async ({ page }) => {
  await login(page, "/logs");
  const rows = page.locator(".log-row");
  await expect(rows.first()).toBeVisible();
  const query = page.getByRole("textbox", { name: "Query" }).or(page.getByRole("searchbox", { name: "Query" })).or(page.getByRole("combobox", { name: "Query" })).first();
  await query.fill("severity:/(err|crit|warn).*/ OR labels.status:>=500");
  await query.press("Enter");
  await expect(page).toHaveURL(/query=/);
  await expect(rows.first()).toBeVisible();
  await query.fill("pod:/(a/");
  await query.press("Enter");
  await expect(page.getByText(/not a regular expression/)).toBeVisible();
});

test("rollouts: the list, and one with its waves and gates, or how to make one", async ({ page }) => {
  await login(page, "/rollouts");
  const first = page.locator("[data-rollout]").first();
  await expect(first.or(page.getByText("No rollout yet"))).toBeVisible();
  const { rollouts } = await get<{ rollouts: { name: string }[] }>(page, "/api/v1/rollouts");
  if (process.env.E2E_ROLLOUTS || MOCK) expect(rollouts.length).toBeGreaterThan(0);
  if (rollouts.length === 0) return;
  await first.getByRole("link").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.locator("[data-standing]")).toBeVisible();
  await expect(page.getByRole("region", { name: "Waves" })).toBeVisible();
  await expect(page.getByRole("region", { name: "Gates", exact: true })).toBeVisible();
  await expect(page.locator("[data-rollout-site]").first().or(page.getByText("No site yet"))).toBeVisible();
});
