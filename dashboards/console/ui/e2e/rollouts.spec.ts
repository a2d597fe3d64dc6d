import type { RolloutDetail, RolloutSiteList } from "../src/api/types";
import { control, expect, get, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the rollouts are the mock's");

const WEB = "/rollouts/shop/web-5b21c9d0?tenant=acme";

test("the list: phases, progress, filters, and what to do where there is none", async ({ page }) => {
  await login(page);
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Rollouts" }).click();
  const rows = page.locator("[data-rollout]");
  await expect(rows).toHaveCount(6);
  await expect(rows.first()).toHaveAttribute("data-rollout", "basket-db-9e1d2c3b");
  const web = page.locator('[data-rollout="web-5b21c9d0"]');
  await expect(web).toContainText("Progressing");
  await expect(web).toContainText("2/4");
  await expect(web.getByRole("img", { name: /2 passed, .* 1 failed/ })).toBeVisible();

  await page.getByRole("button", { name: "Under way" }).click();
  await expect(rows).toHaveCount(3);
  await expect(page).toHaveURL(/state=active/);
  await page.getByRole("button", { name: "All" }).click();
  await page.getByLabel("Phase").selectOption("RolledBack");
  await expect(rows).toHaveCount(1);
  await page.getByRole("searchbox", { name: "Search rollouts" }).fill("no such thing");
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect(rows).toHaveCount(6);
  await page.getByLabel("Tenant").selectOption("globex");
  await expect(rows).toHaveCount(1);

  await control(page, "norollouts");
  await page.goto("/rollouts");
  await expect(page.getByText("No rollout yet")).toBeVisible();
  await control(page, "fail", { path: "/api/v1/rollouts", status: 503, detail: "the API server can't do it now" });
  await page.reload();
  await expect(page.getByText("the API server can't do it now")).toBeVisible();
});

test("one rollout: why it stands where it stands, its waves, gates, scores, decisions", async ({ page }) => {
  await login(page, WEB);
  await expect(page.getByRole("heading", { name: "web-5b21c9d0", level: 1 })).toBeVisible();
  await expect(page.getByText("registry.example/shop/web:2.4.1 → registry.example/shop/web:2.5.0")).toBeVisible();
  await expect(page.getByText(/^in \d+ min \d+ s$/)).toBeVisible();
  const waves = page.getByRole("region", { name: "Waves" });
  await expect(waves.getByRole("img", { name: "Wave 1: 2 passed" })).toBeVisible();
  await expect(waves.locator("[aria-current=step]")).toHaveAttribute("data-wave", "2");
  const scores = page.getByRole("region", { name: "Changed against unchanged" });
  await expect(scores.getByRole("img", { name: /^Score, mean: changed first \d+, now \d+.*; unchanged first \d+/ })).toBeVisible();
  await scores.getByRole("button", { name: "Performance" }).click();
  await expect(scores.getByRole("img", { name: /^Performance, mean: changed/ })).toBeVisible();
  const gates = page.getByRole("region", { name: "Gates", exact: true });
  await expect(gates.locator("[data-gate=before]")).toContainText("measured 1.8, limit at most 10 points");
  await expect(gates.locator("[data-gate=before]")).toContainText("9 of 11 sites");
  await expect(gates.locator("[data-gate=errors] [data-verdict]")).toHaveAttribute("data-verdict", "Unknown");
  await expect(page.locator("[data-what]").first()).toHaveAttribute("data-what", "SiteFailed");

  // From the picture to the sites, without a mouse.
  const rows = page.locator("[data-rollout-site]");
  await expect(rows).toHaveCount(25);
  await waves.getByRole("button", { name: /^1\. / }).focus();
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(2);
  await page.getByRole("button", { name: /^Failed/ }).click();
  await expect(rows).toHaveCount(1);
  await expect(rows.first()).toContainText("web:2.5.0");

  await control(page, "wave", { verdict: "Pass" });
  await expect(waves.locator("[aria-current=step]")).toHaveAttribute("data-wave", "3");
  await control(page, "wave", { verdict: "Fail" });
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "RolledBack");
  await expect(page.getByRole("button", { name: "Abort…" })).toHaveCount(0);

  await page.goto("/rollouts/shop/gone?tenant=acme");
  await expect(page.getByText("There is no such rollout")).toBeVisible();
});

test("one that paused by itself goes on when people say so", async ({ page }) => {
  await login(page, "/rollouts/system/lean-metrics-1f00ba44");
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "Paused");
  await expect(page.getByRole("button", { name: "Pause…" })).toHaveCount(0);
  await page.getByRole("button", { name: "Resume…" }).click();
  const dialog = page.getByRole("dialog", { name: /^Resume this/ });
  await expect(dialog).toContainText("what failed until now no longer counts");
  await dialog.getByRole("button", { name: "Resume", exact: true }).click();
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "Progressing");
});

test("people pause, resume, retry, promote and abort, after a question", async ({ page }) => {
  await login(page, WEB);
  const answer = async (button: string, title: RegExp, ok: string) => {
    await page.getByRole("button", { name: button }).click();
    const dialog = page.getByRole("dialog", { name: title });
    await dialog.getByRole("button", { name: ok, exact: true }).click();
    await expect(dialog).toHaveCount(0);
  };
  await page.getByRole("button", { name: "Pause…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "Progressing");
  await answer("Pause…", /^Pause this/, "Pause");
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "Paused");
  await answer("Resume…", /^Resume this/, "Resume");
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "Progressing");

  await page.getByRole("button", { name: /^Failed/ }).click();
  const failed = page.locator("[data-rollout-site]").first();
  const name = (await failed.getAttribute("data-rollout-site"))!;
  await answer(`Retry ${name}`, /^Retry /, "Retry");
  await expect(page.locator("[data-what]").first()).toContainText(`${name} tries again`);

  await page.getByRole("button", { name: "Promote wave 2…" }).click();
  await expect(page.getByRole("dialog")).toContainText("2 gates do not hold: peers, errors");
  await control(page, "fail", { path: "/api/v1/rollouts/shop", method: "POST", status: 409, title: "Conflict", detail: "wave 2 is not the current one any more" });
  await page.getByRole("dialog").getByRole("button", { name: "Promote" }).click();
  await expect(page.getByRole("dialog")).toContainText("wave 2 is not the current one any more");
  await control(page, "unfail");
  await page.getByRole("dialog").getByRole("button", { name: "Promote" }).click();
  await expect(page.locator("[aria-current=step]")).toHaveAttribute("data-wave", "3");

  await answer("Abort…", /^Abort, and put/, "Abort");
  await expect(page.locator("[data-standing]")).toHaveAttribute("data-standing", "RolledBack");
});

test("who may not, is not offered it", async ({ page }) => {
  await control(page, "rolloutRights", { skipGates: false });
  await login(page, WEB);
  await expect(page.getByRole("button", { name: "Promote wave 2…" })).toBeDisabled();
  await expect(page.getByRole("button", { name: "Pause…" })).toBeEnabled();
  await control(page, "rolloutRights", { control: false });
  await expect(page.getByText("read only")).toBeVisible();
  await expect(page.getByRole("button", { name: "Pause…" })).toHaveCount(0);
  await page.getByRole("button", { name: /^Failed/ }).click();
  await expect(page.getByRole("button", { name: /^Retry/ })).toHaveCount(0);
});

test("a workload and a site lead to the rollout that moves them", async ({ page }) => {
  await login(page, "/workloads/shop/vk8s/Deployment.apps/web?tenant=acme");
  await page.getByRole("region", { name: "Rollout" }).getByRole("link", { name: "web-5b21c9d0" }).click();
  await expect(page).toHaveURL(/\/rollouts\/shop\/web-5b21c9d0\?tenant=acme/);
  await page.getByRole("button", { name: /^Failed/ }).click();
  await page.locator("[data-rollout-site] a").first().click();
  await expect(page).toHaveURL(/\/sites\//);
  const at = page.locator('[data-rollout-at="web-5b21c9d0"]');
  await expect(at).toContainText("Failed");
  await at.getByRole("link").first().click();
  await page.getByRole("listitem").filter({ hasText: "Deployment web" }).getByRole("link", { name: "web" }).click();
  await expect(page.getByRole("heading", { name: "web", level: 1 })).toBeVisible();
});

test("what was between the points of a long rollout's scores is seen", async ({ page }) => {
  await login(page);
  const r = await get<RolloutDetail>(page, "/api/v1/rollouts/shop/web-0c77e1a4?tenant=acme");
  // Points are ten minutes apart.
  const from = Math.floor(Date.parse(r.startedAt!) / 600_000) * 600 + 3700;
  const { sites } = await get<RolloutSiteList>(page, "/api/v1/rollouts/shop/web-0c77e1a4/sites?tenant=acme&limit=1000");
  for (const { site } of sites.filter((s) => s.wave < 3)) await control(page, "moment", { tenant: "acme", site, signal: "", from, to: from + 60, value: 3 });
  await page.goto("/rollouts/shop/web-0c77e1a4?tenant=acme");
  const scores = page.getByRole("region", { name: "Changed against unchanged" });
  await expect(scores.getByRole("img", { name: /^Score, mean: changed .*lowest [0-3] at .*; unchanged / })).toBeVisible({ timeout: 60_000 }); // many sites, looked at often, by a mock
  await expect(scores).toContainText("the columns go from the least to the largest value");
});
