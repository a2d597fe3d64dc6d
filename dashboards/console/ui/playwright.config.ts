import { defineConfig } from "@playwright/test";
import { args, executablePath } from "./e2e/chromium";

// Against a real console: BASE_URL=http://127.0.0.1:8080 TOKEN=$(cat .muster/admin.token) npm run e2e
// Without BASE_URL the page is built and served by the mock of the API (e2e/setup.ts).
export default defineConfig({
  testDir: "e2e",
  globalSetup: "./e2e/setup.ts",
  retries: 1, // one that passes only then is reported as flaky
  workers: 1, // the tests share one fleet
  timeout: 120_000, // generous: a busy machine is no fault of the page
  expect: { timeout: 20_000 },
  reporter: process.env.CI ? "dot" : "list",
  outputDir: "test-results",
  use: {
    viewport: { width: 1440, height: 900 },
    screenshot: "only-on-failure",
    trace: "retain-on-failure",
    launchOptions: { args, ...(executablePath ? { executablePath } : {}) },
  },
});
