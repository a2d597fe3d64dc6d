import { defineConfig } from "@playwright/test";
import { args, executablePath } from "./e2e/chromium";

// Against a real console: BASE_URL=http://127.0.0.1:8080 TOKEN=$(cat .muster/admin.token) npm run e2e
// Without BASE_URL the page is built and served by the mock of the API (e2e/setup.ts).
export default defineConfig({
  testDir: "e2e",
  globalSetup: "./e2e/setup.ts",
  retries: 1, // one that passes only then is reported as flaky
  fullyParallel: true,
  workers: process.env.BASE_URL ? 1 : 2, // a console that runs is one fleet for all tests; a worker has a mock of its own
  timeout: 120_000, // generous: a busy machine is no fault of the page
  expect: { timeout: 20_000 },
  reporter: process.env.CI ? "dot" : "list",
  outputDir: "test-results",
  use: {
    viewport: { width: 1440, height: 900 },
    screenshot: "only-on-failure",
    trace: "on-first-retry",
    launchOptions: { args, ...(executablePath ? { executablePath } : {}) },
  },
});
