import AxeBuilder from "@axe-core/playwright";
import { expect, login, sites, test } from "./fixtures";

test("how loaded sites are: a sentence, bars that open their sites, and a rule", async ({ page }) => {
  await login(page, "/load");
  const memory = page.locator("[data-load=memoryUsed]");
  await expect(memory).toContainText(/Half of the sites .*use \d/);
  await expect(memory.locator(".load-ranked tr").first()).toContainText("%");
  await memory.getByText("Make an alert rule").click();
  await memory.getByLabel("Fires above").fill("85");
  await expect(memory.getByRole("region", { name: /Alert rule/ })).toContainText("> 85");
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  await memory.locator("[data-bin='40']").focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/sites\?q=memoryUsed/);
  await expect(page.getByRole("combobox", { name: "Query" })).toHaveValue("memoryUsed>=40 memoryUsed<45");
});

test("a query chooses the sites", async ({ page }) => {
  await login(page);
  const region = (await sites(page)).find((s) => s.region)!.region;
  await page.goto(`/load?q=${encodeURIComponent(`region=${region}`)}`);
  await expect(page.locator("[data-ready]")).toContainText(/^\d+ of [\d,]+ sites/);
  await page.getByRole("combobox", { name: "Query" }).fill("region=nowhere");
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
});
