import AxeBuilder from "@axe-core/playwright";
import { control, expect, MOCK, test, TOKEN } from "./fixtures";

test.skip(!MOCK, "a real console has one configuration");

const provider = { issuerURL: "https://login.example.com/dex", clientID: "muster", scopes: ["openid"] };

test("without an identity provider the token is asked for", async ({ page }) => {
  await page.goto("/alerts");
  await expect(page.getByLabel("Token")).toBeFocused();
  await expect(page.getByRole("link", { name: /^Log in with/ })).toHaveCount(0);
});

test("an identity provider comes first, and leads back to where one was", async ({ page }) => {
  await control(page, "provider", { provider });
  await page.goto("/alerts?severity=critical");
  await expect(page.getByLabel("Token")).toHaveCount(0);
  await page.getByRole("link", { name: "Log in with login.example.com" }).click();
  await expect(page).toHaveURL(/\/alerts\?severity=critical$/);
  await expect(page.getByRole("heading", { name: "Alerts", level: 1 })).toBeVisible();
});

test("a token still does beside an identity provider", async ({ page }) => {
  await control(page, "provider", { provider });
  await page.goto("/");
  await page.getByRole("button", { name: "Use a token instead" }).click();
  await page.getByLabel("Token").fill(TOKEN || "mock");
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.locator("[data-mark]").first()).toBeVisible();
});

test("a refusal says so, once", async ({ page }) => {
  await control(page, "provider", { provider: { ...provider, denies: true } });
  await page.goto("/");
  await page.getByRole("link", { name: /^Log in with/ }).click();
  await expect(page.getByRole("status")).toHaveText("The identity provider did not let you in.");
  await expect(page).toHaveURL(/\/$/);
  await page.reload();
  await expect(page.getByRole("link", { name: /^Log in with/ })).toBeVisible();
  await expect(page.getByRole("status")).toHaveCount(0);
});

test("one refused request ends no session that lives", async ({ page }) => {
  await page.goto("/");
  await page.getByLabel("Token").fill(TOKEN || "mock");
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.locator("[data-mark]").first()).toBeVisible();
  await control(page, "fail", { path: "/api/v1/health/policies", status: 401, title: "Unauthorized", detail: "renewed elsewhere" });
  await page.goto("/policies");
  await expect(page.getByText("renewed elsewhere")).toBeVisible();
  await expect(page.getByLabel("Token")).toHaveCount(0);
  await control(page, "unfail");
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`the login page (${colorScheme}) has no accessibility faults that axe knows`, async ({ page }) => {
    await control(page, "provider", { provider });
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.goto("/");
    await page.getByRole("button", { name: "Use a token instead" }).click();
    const { violations } = await new AxeBuilder({ page }).analyze();
    expect(violations.map((v) => `${v.id}: ${v.help}`)).toEqual([]);
  });
}
