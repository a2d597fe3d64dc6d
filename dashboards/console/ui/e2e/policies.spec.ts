import { control, enter, expect, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the figures are the mock's");

test("a policy's page has whom it selects, overrides, thresholds and queries", async ({ page }) => {
  await enter(page);
  await page.goto("/policies");
  await page.getByRole("link", { name: "acme/default" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "default" })).toBeVisible();
  await expect(page.getByText("all sites of the tenant")).toBeVisible();
  await expect(page.getByRole("link", { name: /^\d+ sites$/ })).toHaveAttribute("href", "/sites?q=tenant%3Dacme%20policy%3Ddefault");
  await expect(page.getByText("weights security 0.5; the worst one alone makes 50% of the score")).toBeVisible(); // as the API server writes quantities: 500m
  await expect(page.locator("[data-override]")).toContainText("old disks, replaced in March");
  await expect(page.locator("[data-override]")).toContainText("disk-used: bad 98; reboot-required: ignored");
  const disk = page.locator("[data-policy-signal=disk-used]");
  await expect(disk).toContainText("95%");
  await expect(disk).toContainText("red: score at most 39");
  await disk.getByText("disk-used").click();
  await expect(disk.getByText(/^max by \(tenant, site\)/)).toBeVisible();
  await page.getByRole("searchbox", { name: "Find a signal" }).fill("gpu");
  await expect(page.locator("[data-policy-signal]")).toHaveCount(2);
});

test("an edit is tried on the readings of now and of the last day before anybody makes it", async ({ page }) => {
  await enter(page);
  await page.goto("/policies/default?tenant=acme");
  await page.getByRole("button", { name: "Preview an edit" }).click();
  const now = page.getByRole("button", { name: "Try on readings of now" });
  await expect(now).toBeDisabled();
  const bad = page.getByRole("textbox", { name: "bad of disk-used" });
  await bad.fill("lots");
  await expect(page.getByRole("alert")).toContainText("disk-used: bad: want a number");
  await expect(now).toBeDisabled();
  // All of the fleet's disks are fuller than that.
  await page.getByRole("textbox", { name: "good of disk-used" }).fill("10");
  await bad.fill("20");
  await expect(page.getByRole("list", { name: "Changes" })).toContainText("disk-used bad 95 → 20");
  await now.click();
  const result = page.getByRole("region", { name: "Result of now" });
  await expect(result).toHaveAttribute("data-changed", /^[1-9]/);
  const first = result.locator("[data-tried]").first();
  await expect(first).toContainText(/Failing \d+/);
  await expect(first).toContainText("the fullest filesystem is");
  await expect(page.getByLabel("Command")).toContainText(`kubectl patch healthpolicy default -n acme-system --type=json`);

  await page.getByRole("button", { name: "Play the last 24 hours" }).click();
  const played = page.getByRole("region", { name: "Result of the last 24 hours" });
  await expect(played.getByRole("status")).toContainText(/would have had other colours in the last 24 hours; (\d+) of \1 sites looked at\./);
  await expect(played.locator("[data-replayed]").first()).toContainText("no change");
  await page.getByRole("button", { name: "Discard" }).click();
  await expect(bad).toHaveCount(0);
});

test("whose sites a preview is tried on is in the address", async ({ page }) => {
  await enter(page);
  await page.goto("/policies/shipped");
  await page.getByRole("button", { name: "Preview an edit" }).click();
  await expect(page).toHaveURL(/\/policies\/shipped\?preview=acme$/);
  const tenant = page.getByRole("region", { name: "Preview" }).getByRole("combobox", { name: "Tenant" });
  await tenant.selectOption("globex");
  await expect(page).toHaveURL(/\?preview=globex$/);
  await page.reload();
  await expect(tenant).toHaveValue("globex");
  await page.getByRole("textbox", { name: "good of disk-used" }).fill("10");
  await page.getByRole("textbox", { name: "bad of disk-used" }).fill("20");
  const asked = page.waitForRequest((r) => new URL(r.url()).pathname === "/api/v1/health/try");
  await page.getByRole("button", { name: "Try on readings of now" }).click();
  expect(new URL((await asked).url()).searchParams.get("tenant")).toBe("globex");
  await page.getByRole("button", { name: "Discard" }).click();
  await expect(page).toHaveURL(/\/policies\/shipped$/);
  await page.goto("/policies/default?tenant=acme&preview=acme");
  await expect(page.getByRole("textbox", { name: "bad of disk-used" })).toBeVisible();
});

test("a preview does not wait for the slowest region, and adds its sites when they come", async ({ page }) => {
  await enter(page);
  await control(page, "region", { region: "us-east", late: true });
  // What comes after the two seconds is held back for as long as the test looks at what came before.
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await page.route((url) => url.pathname === "/api/v1/health/try" && !url.searchParams.get("patience"), async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("/policies/default?tenant=acme");
  await page.getByRole("button", { name: "Preview an edit" }).click();
  await page.getByRole("textbox", { name: "good of disk-used" }).fill("10");
  await page.getByRole("textbox", { name: "bad of disk-used" }).fill("20");
  await page.getByRole("button", { name: "Try on readings of now" }).click();
  const result = page.getByRole("region", { name: "Result of now" });
  const late = result.getByText(/more sites not looked at/);
  await expect(late).toBeVisible();
  await expect(result).toContainText("us-east has not answered yet: still asking.");
  const part = Number(await result.getAttribute("data-changed"));
  expect(part).toBeGreaterThan(0);
  release();
  await expect(late).toHaveCount(0);
  expect(Number(await result.getAttribute("data-changed"))).toBeGreaterThan(part);
  await control(page, "region", { region: "us-east" });
});

test("loading, errors and what is not there are told apart", async ({ page }) => {
  await enter(page);
  await page.goto("/policies/nothing?tenant=acme");
  await expect(page.getByRole("heading", { name: "There is no health policy nothing" })).toBeVisible();
  await page.goto("/policies/default"); // two tenants have one
  await expect(page.getByRole("main").getByRole("link", { name: "globex" })).toHaveAttribute("href", "/policies/default?tenant=globex");
  await control(page, "fail", { path: "/api/v1/health/try", status: 503, title: "Service Unavailable", detail: "another policy is being tried; try again in a few seconds" });
  await page.goto("/policies/default?tenant=acme");
  await page.getByRole("button", { name: "Preview an edit" }).click();
  await page.getByRole("textbox", { name: "bad of disk-used" }).fill("90");
  await page.getByRole("button", { name: "Try on readings of now" }).click();
  await expect(page.getByRole("alert")).toContainText("another policy is being tried");
  await control(page, "fail", { path: "/api/v1/health/policies", status: 503, title: "Service Unavailable", detail: "the health engine can't be reached; it may be starting" });
  await page.goto("/policies/default?tenant=acme");
  await expect(page.getByRole("alert")).toContainText("the health engine can't be reached");
  await control(page, "unfail");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByText("all sites of the tenant")).toBeVisible();
});
