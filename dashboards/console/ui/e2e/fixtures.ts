import { execSync } from "node:child_process";
import { expect, type Page, test as base } from "@playwright/test";
import type { Registration, Site, SiteList, VirtualSite } from "../src/api/types";
import { startMock } from "./mock";

export const TOKEN = process.env.TOKEN ?? "";
export const MOCK = process.env.E2E_MOCK === "1";

/**
 * Every test also fails on an error of the page, on a breach of the content security
 * policy, and on a request to any other server.
 */
export const test = base.extend<{ faults: string[] }, { server: string }>({
  server: [
    // eslint-disable-next-line no-empty-pattern -- how Playwright wants it
    async ({}, provide) => {
      if (!MOCK) return provide(process.env.BASE_URL ?? "");
      const mock = await startMock(); // of this worker alone, so that no test sees another's faults
      await provide(mock.url);
      mock.stop();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ server }, provide) => provide(server),
  faults: [
    async ({ page, baseURL }, use) => {
      const faults: string[] = [];
      page.on("pageerror", (e) => faults.push(`error of the page: ${e}`));
      page.on("console", (m) => {
        if (/Content.Security.Policy|Refused to/i.test(m.text())) faults.push(m.text());
      });
      page.on("request", (r) => {
        if (!r.url().startsWith(baseURL!) && !r.url().startsWith("data:")) faults.push(`request to ${r.url()}`);
      });
      if (MOCK) await control(page, "reset");
      await use(faults);
      expect(faults).toEqual([]);
    },
    { auto: true },
  ],
});

/** A test that only the mock's fleet can pass, or that is of the page alone and has one answer with any fleet:
 *  elsewhere no page is opened for it. */
export const mocked = MOCK ? test : test.skip;

export { expect };

/** Drives the mock. */
export async function control(page: Page, what: string, data: object = {}): Promise<void> {
  const r = await page.request.post(`/mock/${what}`, { data });
  expect(r.ok()).toBe(true);
}

export async function login(page: Page, path = "/"): Promise<void> {
  await page.goto(`${path}#token=${encodeURIComponent(TOKEN)}`);
  await expect(page.getByRole("navigation", { name: "Main" })).toBeVisible();
}

/** Logs in without opening a page: for tests of one that is not reached from another. */
export async function enter(page: Page): Promise<void> {
  const r = await page.request.post("/api/v1/session", { data: { token: TOKEN } });
  expect(r.ok()).toBe(true);
}

export async function sites(page: Page): Promise<Site[]> {
  const all: Site[] = [];
  for (let cursor = ""; ; ) {
    const r = (await (await page.request.get(`/api/v1/health/sites?limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`)).json()) as SiteList;
    all.push(...r.sites);
    if (!r.nextCursor) return all;
    cursor = r.nextCursor;
  }
}

export async function get<T>(page: Page, path: string): Promise<T> {
  const r = await page.request.get(path);
  expect(r.ok(), `GET ${path}: ${r.status()}`).toBe(true);
  return (await r.json()) as T;
}

/** What a fault needs: the mock, or commands such as E2E_BREAK="bin/muster demo break {site} uplink-down". */
export const canBreak = MOCK || !!process.env.E2E_BREAK;

const run = (command: string, site: string) => execSync(command.replaceAll("{site}", site), { stdio: "inherit" });

export async function breakSite(page: Page, s: Site): Promise<void> {
  if (MOCK) await control(page, "break", { tenant: s.tenant, site: s.name, fault: "uplink-down" });
  else run(process.env.E2E_BREAK!, s.name);
}

export async function healSite(page: Page, s: Site): Promise<void> {
  if (MOCK) await control(page, "heal", { tenant: s.tenant, site: s.name });
  else if (process.env.E2E_HEAL) run(process.env.E2E_HEAL, s.name);
}

/** How long the real fleet may take from a fault to the page. */
export const FAULT_TIMEOUT = MOCK ? 20_000 : 60_000;

export type { Registration, Site, VirtualSite };
