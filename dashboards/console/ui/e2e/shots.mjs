// Takes a picture of every page in both themes at three sizes, into screenshots/:
//   node e2e/shots.mjs [page [look]]     regular expressions, such as 'site|alerts' dark-390     (BASE_URL and TOKEN as in the tests; default: a mock of its own, with MOCK_SITES sites)
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { chromium } from "@playwright/test";
import { EXAMPLES } from "./routes.mjs";

const only = process.argv[2] ?? "";
const look = new RegExp(process.argv[3] ?? "");
let base = process.env.BASE_URL;
const token = process.env.TOKEN ?? "mock";
let mock;
if (!base) {
  // With thousands of sites a tick costs the mock seconds: as few as keep the page from saying that its data are old.
  const tick = only === "stale" ? {} : { MOCK_TICK_MS: process.env.MOCK_TICK_MS ?? "15000" };
  mock = spawn(process.execPath, ["mock/server.mjs", "0"], { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, MOCK_STILL: "1", ...tick } });
  process.on("exit", () => mock.kill());
  base = await new Promise((ok) => mock.stdout.once("data", (d) => ok(/http:\/\/[^/]+/.exec(d.toString())[0])));
}
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
mkdirSync("screenshots", { recursive: true });

const get = (page) => async (path) => (await page.request.get(base + path)).json();
const worst = (page) => EXAMPLES["/sites/:name"].address(get(page));
/** A site whose disk was full, and whose score was low, for an hour, and which said nothing for three. */
const eventful = async (page) => {
  const s = (await (await page.request.get(`${base}/api/v1/health/sites?limit=1000`)).json()).sites.find((x) => x.colour === "green" && x.name.length % 3 !== 0);
  const from = (Math.floor(Date.now() / 14_400_000) - 60) * 14_400 + 1800 + (Math.floor(Date.now() / 1000) % 14_400); // between two points, which end with now
  const moments = [{ signal: "disk-used", value: 97 }, { signal: "", value: 31 }, { signal: "performance", value: 20 }].map((m) => ({ ...m, from, to: from + 3600 }));
  for (const m of [...moments, { from: from + 6 * 86_400, to: from + 6 * 86_400 + 10_800, value: null }]) await page.request.post(`${base}/mock/moment`, { data: { site: s.name, tenant: s.tenant, ...m } });
  return s;
};
const PAGES = {
  ...Object.fromEntries(Object.values(EXAMPLES).map(({ name, address }) => [name, async (p) => p.goto(base + (await address(get(p))))])),
  "fleet-zoomed": async (p) => {
    await p.goto(`${base}/`);
    await p.locator(".marker.cluster").first().focus();
    await p.waitForTimeout(300);
    await p.keyboard.press("Enter");
    await p.waitForTimeout(700);
  },
  "fleet-filtered": async (p) => p.goto(`${base}/?q=colour+in+(red,+orange)+paris`),
  "fleet-town": async (p) => {
    await p.goto(`${base}/?q=name%3Dlyon-01&by=version`);
    await p.locator("[data-mark]").first().waitFor();
    for (let i = 0; i < 6; i++) await p.getByRole("button", { name: "Zoom in" }).click();
    await p.waitForTimeout(3000);
  },
  "explore-begin": async (p) => p.goto(`${base}/explore`),
  "explore-30d": async (p) => p.goto(`${base}/explore?tenant=acme&range=30d&query=${encodeURIComponent("sum by (site) (node_load1)")}`),
  "signal-30d": async (p) => {
    const site = await eventful(p);
    await p.goto(`${base}/sites/${site.name}/signals/disk-used?tenant=${site.tenant}&range=30d`);
  },
  "site-30d": async (p) => {
    const site = await eventful(p);
    await p.goto(`${base}/sites/${site.name}?tenant=${site.tenant}`);
    await p.getByRole("region", { name: "History of the score" }).getByRole("button", { name: "30 d" }).click();
  },
  "alert-groups": async (p) => p.goto(`${base}/alerts?tab=groups`),
  "silence-groups": async (p) => {
    await p.goto(`${base}/alerts?tab=groups`);
    const boxes = p.getByRole("checkbox", { name: /^Choose (?!all)/ });
    for (const i of [0, 1, 2]) await boxes.nth(i).check();
    await p.getByRole("button", { name: /^Silence these 3 groups/ }).click();
  },
  loudest: async (p) => p.goto(`${base}/alerts?tab=loudest`),
  "site-reset": async (p) => {
    await p.goto(base + (await worst(p)));
    await p.getByRole("button", { name: "Reset…" }).click();
  },
  "site-resetting": async (p) => {
    await p.goto(base + (await worst(p)));
    const card = p.getByRole("region", { name: "Factory reset" });
    await card.waitFor();
    if ((await card.getByRole("button", { name: "Reset…" }).count()) > 0) { // else an earlier picture's
      await card.getByRole("button", { name: "Reset…" }).click();
      await p.getByLabel("Name of the site").fill(await p.getByLabel("Name of the site").getAttribute("placeholder"));
      await p.getByRole("button", { name: "Reset the site" }).click();
    }
    await card.getByText("The site is asked").scrollIntoViewIfNeeded();
  },
  "logs-line": async (p) => {
    await p.goto(`${base}/logs?tenant=acme&severity=critical,error&range=24h`);
    await p.locator(".log-row").nth(2).click();
  },
  "logs-live": async (p) => p.goto(`${base}/logs?tenant=acme&live=1`),
  "logs-fault": async (p) => {
    await p.goto(`${base}/logs?tenant=acme&query=${encodeURIComponent("refused AND (")}`);
    await p.getByRole("button", { name: "How to write a query" }).click();
  },
  silence: async (p) => {
    await p.goto(`${base}/alerts`);
    await p.locator("[data-alert] a").first().click();
    await p.getByRole("button", { name: "Silence…" }).click();
  },
  silences: async (p) => p.goto(`${base}/alerts?tab=silences&silences=all`),
  "alerts-down": async (p) => {
    await p.route(/\/api\/v1\/alerts/, (r) => r.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Service Unavailable", status: 503, detail: "the alerting role can't be reached; it may be starting" }) }));
    await p.goto(`${base}/alerts`);
    await p.waitForTimeout(1500);
  },
  plan: async (p) => {
    await p.goto(`${base}/virtual-sites/shared/all-eu?tenant=acme`);
    await p.getByRole("button", { name: "Plan…" }).click();
  },
  approve: async (p) => {
    await p.goto(`${base}/registrations`);
    await p.getByRole("button", { name: /^Approve/ }).first().click();
  },
  "workloads-none": async (p) => p.goto(`${base}/workloads?tenant=acme&in=lab/vk8s`),
  "workloads-teach": async (p) => {
    await p.route("**/api/v1/vk8s", (r) => r.fulfill({ json: { virtualKubernetes: [] } }));
    await p.goto(`${base}/workloads`);
  },
  "pod-delete": async (p) => {
    await p.goto(`${base}/workloads`);
    await p.locator("[data-workload='Deployment/checkout'] a").first().click();
    await p.getByRole("button", { name: /^Delete / }).first().click();
  },
  "deploy-checked": async (p) => {
    await p.goto(`${base}/workloads/deploy`);
    await p.getByRole("button", { name: "Start from an example" }).click();
    await p.getByLabel("Virtual site").selectOption({ index: 1 });
    await p.getByRole("button", { name: "Check" }).click();
  },
  "deploy-refused": async (p) => {
    await p.goto(`${base}/workloads/deploy`);
    await p.getByRole("textbox").fill("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  annotations:\n    ves.io/workload-flavor: huge\n---\napiVersion: v1\nkind: Widget\nmetadata:\n  name: x\n");
    await p.getByRole("button", { name: "Check" }).click();
  },
  "virtual-host-fails": async (p) => p.goto(`${base}/virtual-hosts/shop/stock?tenant=acme&part=consumes`),
  "rollouts-none": async (p) => p.goto(`${base}/rollouts?q=nothing-such`),
  "rollouts-teach": async (p) => {
    await p.route("**/api/v1/rollouts?**", (r) => r.fulfill({ json: { total: 0, rollouts: [] } }));
    await p.goto(`${base}/rollouts`);
  },
  "rollout-back": async (p) => {
    await p.goto(`${base}/rollouts`);
    await p.locator("[data-rollout='checkout-77aa01f3'] a").click();
  },
  "rollout-queued": async (p) => {
    await p.goto(`${base}/rollouts`);
    await p.locator("[data-rollout='basket-db-9e1d2c3b'] a").click();
  },
  "rollout-promote": async (p) => {
    await p.goto(`${base}/rollouts`);
    await p.locator("[data-rollout='web-5b21c9d0'] a").click();
    await p.getByRole("button", { name: /^Promote/ }).click();
  },
  "cost-tenants": async (p) => p.goto(`${base}/cost?by=tenant&sort=cpu`),
  "not-found": async (p) => p.goto(`${base}/nowhere`),
  "virtual-hosts-none": async (p) => {
    await p.route("**/api/v1/virtualhosts?**", (r) => r.fulfill({ json: { virtualHosts: [] } }));
    await p.route("**/api/v1/virtualhosts", (r) => r.fulfill({ json: { virtualHosts: [] } }));
    await p.goto(`${base}/virtual-hosts`);
  },
  login: async (p) => {
    await p.goto(`${base}/`);
    await p.getByRole("button", { name: "Log out" }).click();
  },
  loading: async (p) => {
    await p.route(/\/api\/v1\/site(s|-map)\b/, () => {});
    await p.goto(`${base}/`);
  },
  error: async (p) => {
    await p.route(/\/api\/v1\/site(s|-map)\b/, (r) => r.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Service Unavailable", status: 503, detail: "the health engine can't be reached; it may be starting" }) }));
    await p.goto(`${base}/`);
    await p.waitForTimeout(1500);
  },
  empty: async (p) => {
    const counts = { green: 0, orange: 0, red: 0, grey: 0 };
    const asOf = new Date().toISOString();
    await p.route(/\/api\/v1\/sites\b/, (r) => r.fulfill({ json: { asOf, columns: [], readable: 0, total: 0, counts, sites: [], notes: [] } }));
    await p.route(/\/api\/v1\/site-map\b/, (r) => r.fulfill({ json: { asOf, readable: 0, total: 0, unplaced: 0, maintenance: 0, counts, tenants: [], names: [], tenant: [], latitude: [], longitude: [], colour: "", score: [], inMaintenance: [], by: "", kind: "", notes: [] } }));
    await p.route(/\/api\/v1\/registrations\b/, (r) => r.fulfill({ json: { asOf: null, total: 0, registrations: [] } }));
    await p.goto(`${base}/`);
  },
  stale: async (p) => {
    await p.route("**/api/v1/health/stream**", (r) => r.abort());
    await p.goto(`${base}/`);
    await p.waitForTimeout(31500);
  },
};

/** Waits until a page is there with all that it asks for, and its charts are drawn, on a busy machine too. */
async function settled(page) {
  const done = () => document.querySelector("h1") && !document.querySelector(".skeleton") && [...document.querySelectorAll(".chart > [role=img]:not(.spans)")].every((c) => c.querySelector("canvas, p"));
  for (let i = 0; i < 2; i++) {
    await page.waitForFunction(done, null, { timeout: 15_000 });
    await page.waitForTimeout(700);
  }
}

for (const theme of ["dark", "light"]) {
  for (const [w, h] of [[1440, 900], [390, 844], [2560, 1300]]) {
    if (!look.test(`${theme}-${w}`)) continue;
    const context = await browser.newContext({ viewport: { width: w, height: h }, colorScheme: theme, reducedMotion: "reduce", ...(w < 500 ? { hasTouch: true, deviceScaleFactor: 2 } : {}) });
    const login = () => context.request.post(`${base}/api/v1/session`, { data: { token }, maxRetries: 3 });
    await login();
    for (const [name, go] of Object.entries(PAGES)) {
      if ((only && !name.match(new RegExp(`^(${only})$`))) || (name === "stale" && only !== "stale")) continue;
      const page = await context.newPage();
      page.on("console", (m) => m.type() === "error" && !/status of (400|401|503)/.test(m.text()) && console.log(name, m.text()));
      page.on("pageerror", (e) => console.log(name, String(e)));
      try {
        await go(page);
        // A picture of what is still loading says nothing.
        if (name !== "loading") await settled(page).catch(() => console.log(name, "still loads"));
        // The whole of a list that draws what is in sight would be all of its rows.
        await page.screenshot({ path: `screenshots/${name}-${theme}-${w}${process.env.MOCK_SITES ? `-${process.env.MOCK_SITES}` : ""}.png`, fullPage: (w < 500 && name !== "sites") || ["site", "site-30d", "score", "policies", "virtual-site", "virtual-host", "virtual-hosts"].includes(name) || name.startsWith("rollout") });
      } catch (e) {
        // The other pages' pictures are wanted all the same.
        console.log(name, theme, w, String(e));
        process.exitCode = 1;
      }
      await page.close();
      if (name === "login") await login(); // it logs out
    }
    await context.close();
  }
}
await browser.close();
mock?.kill();
