// How long the map and the inventory take until sites are seen, from the first byte that the browser asks for:
//   node e2e/paint.mjs [sites]     (default 10000; of dist/, against a mock of its own, or of the console at BASE_URL with TOKEN)
// Times are the page's own (performance.now), median and most of ten visits with an empty cache. A visit before them is
// not counted: it has the mock work out its answers, which takes it longer than it takes the real inventory.

import { spawn } from "node:child_process";
import { chromium } from "@playwright/test";

const sites = process.argv[2] ?? "10000";
const token = process.env.TOKEN ?? "mock";
let base = process.env.BASE_URL;
let mock;
if (!base) {
  mock = spawn(process.execPath, ["mock/server.mjs", "0"], { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, MOCK_SITES: sites, MOCK_STILL: "1", MOCK_TICK_MS: "3600000", TOKEN: token } });
  base = await new Promise((ok) => mock.stdout.once("data", (d) => ok(/http:\/\/[^/]+/.exec(String(d))[0])));
}
const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
const VISITS = 10;

for (const [path, first] of [["/", "[data-mark]"], ["/sites", ".inv-body .inv-row a"], ["/load", ".load-bars"]]) {
  const took = [];
  for (let i = -1; i < VISITS; i++) {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    await context.request.post(`${base}/api/v1/session`, { data: { token } });
    const page = await context.newPage();
    await page.addInitScript((wanted) => {
      const look = () => (document.querySelector(wanted) ? requestAnimationFrame(() => setTimeout(() => (window.seen = performance.now()))) : requestAnimationFrame(look));
      requestAnimationFrame(look);
    }, first);
    await page.goto(base + path);
    await page.waitForFunction(() => window.seen !== undefined);
    const times = await page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0, seen: window.seen }));
    if (i >= 0) took.push(times);
    await context.close();
  }
  const figures = (name) => took.map((t) => t[name]).sort((a, b) => a - b).map(Math.round);
  const [paint, seen] = [figures("paint"), figures("seen")];
  console.log(`${path} with ${sites} sites: first paint ${paint[VISITS / 2]} ms (most ${paint.at(-1)}), sites seen after ${seen[VISITS / 2]} ms (most ${seen.at(-1)})`);
}
await browser.close();
mock?.kill();
