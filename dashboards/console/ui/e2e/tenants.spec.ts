import { control, expect, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the figures are the mock's");

test("use against quota, near it and over it, in words too", async ({ page }) => {
  await login(page);
  await page.goto("/tenants");
  const acme = page.getByRole("region", { name: "acme" });
  await expect(acme.getByText("412,000 of 500,000")).toBeVisible();
  await expect(acme.getByText("82%, nearly used up")).toBeVisible();
  await expect(acme.getByText("105%, used up")).toBeVisible();
  await expect(acme.getByText("of any number")).toBeVisible();
  await expect(page.getByRole("region", { name: "globex" }).getByText("Nothing is counted yet")).toBeVisible();
});

test("a failure says so and offers to try again", async ({ page }) => {
  await login(page);
  await control(page, "fail", { path: "/api/v1/tenants", status: 503, title: "Service Unavailable", detail: "the API server can't list the tenants" });
  await page.goto("/tenants");
  await expect(page.getByText("the API server can't list the tenants")).toBeVisible();
  await control(page, "unfail");
  await page.getByRole("button", { name: /again/i }).click();
  await expect(page.getByRole("region", { name: "acme" })).toBeVisible();
});
