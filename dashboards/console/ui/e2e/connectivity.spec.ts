import type { Locator, Page } from "@playwright/test";
import type { Link, LinkPage, Matrix } from "../src/api/types";
import { formatCount, formatPercent, formatValue } from "../src/lib/format";
import { axe, faults } from "./axe";
import { control, expect, get, login, MOCK, sites, test } from "./fixtures";

test.skip(!MOCK, "counts on the mock's sites");

const known = (v: number | null, f: (v: number) => string): string => (v === null ? "–" : f(v));
const millis = (v: number | null) => known(v, (x) => formatValue(x / 1000, "seconds"));
const rate = (v: number | null) => known(v, (x) => `${formatValue(x, "bytes")}/s`);
const share = (v: number | null) => known(v, formatPercent);
const times = (v: number | null) => known(v, formatCount);

/** What a row of the table says of a link, by its headings. */
const figures = (l: Link) => ({ "Round trip": millis(l.roundTrip), Loss: share(l.loss), Sent: rate(l.sent), Received: rate(l.received), Reconnects: times(l.reconnects), "Requests/min": times(l.requests), Errors: share(l.errors) });

/** The series that the page was told, by the query that it asked. */
function told(page: Page): Map<string, Matrix> {
  const all = new Map<string, Matrix>();
  page.on("response", async (r) => {
    const q = new URL(r.url()).searchParams;
    if (r.url().includes("/metrics/query_range") && !q.has("within")) all.set(q.get("query")!, (await r.json()) as Matrix);
  });
  return all;
}

/** That a chart has these lines, told apart by a label, with the first, newest, least and largest value of the newest answer. */
async function shows(card: Locator, answer: () => Matrix | undefined, label: string, say: (v: number) => string, lines: readonly string[]): Promise<void> {
  await expect(card.locator(".chart canvas")).toBeVisible();
  await expect(card.locator(".link-legend li")).toHaveText(lines);
  await expect(async () => {
    const series = answer()!.data!.result.map((s) => ({ name: s.metric[label]!, values: s.values.map(([, v]) => Number(v)) }));
    expect(series.map((s) => s.name).sort()).toEqual(lines);
    const text = await card.getByRole("img").getAttribute("aria-label");
    for (const { name, values } of series) {
      expect(Math.max(...values)).toBeGreaterThan(0);
      expect(text).toMatch(new RegExp(`[:;] ${name} first ${say(values[0]!)}, now ${say(values.at(-1)!)}, lowest ${say(Math.min(...values))} at [\\d:]+, highest ${say(Math.max(...values))}(;|$)`));
    }
  }).toPass({ timeout: 20_000 });
}

test("links in a picture and one by one, by keyboard", async ({ page }) => {
  await login(page, "/connectivity");
  await expect(page.locator("[data-ready]")).toContainText(/links?, as of/);
  const regional = page.locator("[data-regional]").first();
  await expect(regional.locator("[data-group]").first()).toContainText("ms");
  expect(await faults(axe(page))).toEqual([]);

  // Each regional and group has the figures of its own links.
  const whole = await get<LinkPage>(page, "/api/v1/links?by=region");
  const drawn = whole.regionals.filter((r) => r.name !== "");
  expect(drawn.length).toBeGreaterThan(2);
  for (const r of drawn) {
    const card = page.locator(`[data-regional="${r.name}"]`);
    await expect(card.locator("header")).toContainText(`${r.sites} sites · ${rate(r.sent)} in · ${rate(r.received)} out · ${times(r.reconnects)} reconnects in an hour`);
    const groups = [...r.groups, ...(r.more ? [{ ...r.more, value: "all others" }] : [])];
    await expect(card.locator("[data-group] .link-figures:nth-child(2)")).toHaveText(groups.map((g) => `${millis(g.roundTrip)}${share(g.loss)} lost`));
    await expect(card.locator("[data-group] .link-figures:nth-child(3)")).toHaveText(groups.map((g) => `↑ ${rate(g.sent)} sent↓ ${rate(g.received)} received`));
  }
  expect(new Set(drawn.flatMap((r) => r.groups.map((g) => g.loss))).size).toBeGreaterThan(1);
  const cells = await page.locator("[data-link]").evaluateAll((rows) => rows.map((r) => Object.fromEntries([...r.querySelectorAll("[data-label]")].slice(2).map((c) => [c.getAttribute("data-label"), c.textContent]))));
  expect(cells).toEqual(whole.links.map(figures));

  // A group narrows the page to its links.
  const group = regional.locator("[data-group] a").first();
  await group.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/connectivity\?q=regional%3D/);
  await expect(page.locator("[data-ready]")).toContainText(/^.*\d+ of [\d,]+ links/s);

  // A heading ranks them.
  const head = page.getByRole("columnheader", { name: "Round trip" });
  await head.getByRole("button").press("Enter");
  await expect(head).toHaveAttribute("aria-sort", "descending");
  const trips = async () => (await page.locator("[data-link] [data-label='Round trip']").allTextContents()).map((t) => Number.parseFloat(t)).filter((n) => !Number.isNaN(n));
  await expect.poll(async () => {
    const t = await trips();
    return t.length > 1 && t.every((v, i) => i === 0 || v <= t[i - 1]!);
  }).toBe(true);

  // A link leads to what went over it, by target.
  const answers = told(page);
  const row = page.locator("[data-link]").first();
  const site = (await row.getAttribute("data-link"))!;
  await row.getByRole("link").press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toContainText(`${site}↔`);
  const { links } = await get<LinkPage>(page, `/api/v1/links?q=name%3D${site}`);
  await expect(page.locator(".figures dd")).toHaveText([...Object.values(figures(links[0]!)), millis(links[0]!.handshake)]);
  const asked = (what: string) => () => answers.get([...answers.keys()].find((q) => q.includes(what) && q.includes(`{site="${site}"}`)) ?? "");
  for (const [id, what, label, unit, lines] of [
    ["requests", "60 * sum by (target) (rate(muster_agent_link_request_seconds_count", "target", "/min", ["logs", "push"]],
    ["errors", "60 * label_join(sum by (target, reason) (rate(muster_agent_link_request_errors_total", "what", "/min", ["logs refused", "push unreachable"]],
  ] as const) await shows(page.locator(`[data-chart=${id}]`), asked(what), label, (v) => formatValue(v) + unit, lines);
  await expect(page.locator("[data-chart=round-trip] .chart")).toBeVisible();
  expect(await faults(axe(page))).toEqual([]);
  await page.getByRole("button", { name: "6 h" }).click();
  await expect(page).toHaveURL(/range=6h/);
});

test("errors of a link are told apart by target and by what went wrong, and none are where none were", async ({ page }) => {
  await login(page);
  const { links } = await get<LinkPage>(page, "/api/v1/links?sort=-link.errors&limit=1000");
  const bad = links.find((l) => (l.errors ?? 0) > 0)!;
  const asked: string[] = [];
  page.on("request", (r) => {
    const q = new URL(r.url()).searchParams.get("query") ?? "";
    if (r.url().includes("query_range") && q.includes("request_errors_total")) asked.push(q);
  });
  await page.goto(`/connectivity/${bad.site}?tenant=${bad.tenant}`);
  const errors = page.locator("[data-chart=errors]");
  await expect(errors.locator(".link-legend li")).toHaveText(["logs refused", "push unreachable"]);
  await expect(errors.getByRole("img", { name: /\/min/ })).toBeVisible();
  await expect(errors).toContainText("Refused: HTTP status 4xx; failed: 5xx; unreachable: no answer.");
  expect(asked[0]).toContain("sum by (target, reason)");
  // The figure of the page's head is of the same requests.
  await expect(page.locator(".figures div", { hasText: "Errors" }).locator("dd")).toHaveText(new RegExp(`^${bad.errors! < 10 ? bad.errors!.toFixed(1).replace(".0", "(\\.0)?") : Math.round(bad.errors!)}`));
  // The same by hand: the expression is one click away.
  await errors.getByRole("link", { name: "Errors: open in Metrics" }).click();
  await expect(page).toHaveURL(/\/explore\?.*request_errors_total/);

  // One without an ingress or mesh has no charts of services, and says what would give it some.
  const good = (await get<LinkPage>(page, "/api/v1/links?q=link.errors%3D0+version%3D0.4.1")).links[0]!;
  await page.goto(`/connectivity/${good.site}?tenant=${good.tenant}`);
  await expect(errors).toContainText("No request failed in this time.");
  await expect(errors.locator(".link-legend")).toHaveCount(0);
  await expect(page.getByText("No ingress or mesh of the site tells of requests.")).toBeVisible();
  await expect(page.locator("[data-chart^=service]")).toHaveCount(0);
});

test("requests, errors and time to answer of a site's services, whichever of the four proxies tells of them", async ({ page }) => {
  await login(page);
  const { site, tenant } = (await get<LinkPage>(page, "/api/v1/links?q=phase%3DOnline+version%3D0.4.2")).links.find((l) => l.requests !== null)!;
  const answers = told(page);
  await page.goto(`/connectivity/${site}?tenant=${tenant}`);
  const services = ["catalogue", "checkout", "payments"];
  const charts = [
    { id: "service-requests", say: (v: number) => `${formatValue(v)}/s`, metrics: ["envoy_cluster_upstream_rq_xx", "traefik_service_requests_total", "nginx_ingress_controller_requests", "response_total"], is: /^sum by \(service\)/ },
    { id: "service-errors", say: formatPercent, metrics: ['envoy_response_code_class="5"', 'code=~"5.*"', 'status=~"5.*"', 'classification="failure"'], is: /^100 \* sum by \(service\)/ },
    { id: "service-latency", say: (v: number) => formatValue(v, "seconds"), metrics: ["envoy_cluster_upstream_rq_time_sum", "traefik_service_request_duration_seconds_sum", "nginx_ingress_controller_request_duration_seconds_sum", "response_latency_ms_sum"], is: /^sum by \(service\)/ },
  ];
  for (const { id, say, metrics, is } of charts) {
    const query = () => [...answers.keys()].find((q) => is.test(q) && q.includes(`site="${site}"`) && metrics.every((m) => q.includes(m))) ?? "";
    await shows(page.locator(`[data-chart=${id}]`), () => answers.get(query()), "service", say, services);
  }
});

test("what was between the points of a link's charts is seen, also where its lines are of what went wrong alone", async ({ page }) => {
  await login(page);
  const s = (await sites(page)).find((x) => x.colour === "green")!;
  // Points are twelve minutes apart and end with this minute.
  const from = (Math.floor(Date.now() / 60_000) - 60 * 12) * 60 + 500;
  await control(page, "moment", { site: s.name, tenant: s.tenant, signal: "link", from, to: from + 120, value: 7 });
  await page.goto(`/connectivity/${s.name}?tenant=${s.tenant}&range=24h`);
  await expect(page.locator("[data-chart=round-trip]").getByRole("img", { name: /highest 7\.?0* ?s/ })).toBeVisible();
  await expect(page.locator("[data-chart=errors]").getByRole("img", { name: /highest 7\/min/ })).toBeVisible();
  await expect(page.getByText("the columns go from the least to the largest value")).toHaveCount(1);
});

test("another grouping, more links, and a query that means none", async ({ page }) => {
  await login(page, "/connectivity");
  await page.getByLabel("Group by").selectOption("virtualSite");
  await expect(page).toHaveURL(/group=virtualSite/);
  await expect(page.locator("[data-group='shared/all-eu']").first()).toBeVisible();
  const rows = page.locator("[data-link]");
  await expect(rows).toHaveCount(50);
  await page.getByRole("button", { name: "Load more" }).click();
  await expect(rows).toHaveCount(100);
  await page.getByRole("combobox", { name: "Query" }).fill("region=nowhere");
  await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
});

test("what came is shown while a regional is late, who is late is named, and its figures are added when they come", async ({ page }) => {
  await page.clock.install();
  await control(page, "latelinks", { regional: "eu-1" });
  await login(page, "/connectivity");
  const regional = (name: string) => page.locator(`[data-regional="${name}"]`);
  const note = page.getByRole("status").filter({ hasText: "regional eu-1" });
  await expect(note).toHaveText("the figures of links to regional eu-1 are not all known: it did not answer");
  const before = await get<LinkPage>(page, "/api/v1/links?by=region");
  for (const r of before.regionals) {
    if (r.name === "") continue;
    await expect(regional(r.name).locator("header")).toContainText(`${r.sites} sites`);
    await expect(regional(r.name).locator("[data-group] .link-figures:nth-child(2)").first()).toHaveText(r.name === "eu-1" ? "––" : `${millis(r.groups[0]!.roundTrip)}${share(r.groups[0]!.loss)} lost`);
  }
  // What is known of its sites without it stays: how many there are, and their colours.
  await expect(regional("eu-1").locator("[data-group] a").first()).toHaveAttribute("aria-label", /sites, .* healthy, worst connectivity \d/);
  await expect(regional("eu-1").locator("header")).not.toContainText("reconnects");

  await regional("us-1").evaluate((e) => e.setAttribute("data-stays", ""));
  await control(page, "latelinks");
  await page.clock.fastForward(20_000);
  await expect(note).toHaveCount(0);
  const after = (await get<LinkPage>(page, "/api/v1/links?by=region")).regionals.find((r) => r.name === "eu-1")!;
  expect(after.sent).toBeGreaterThan(0);
  await expect(regional("eu-1").locator("header")).toContainText(`${rate(after.sent)} in · ${rate(after.received)} out`);
  await expect(regional("eu-1").locator("[data-group] .link-figures:nth-child(2)")).toHaveText(after.groups.map((g) => `${millis(g.roundTrip)}${share(g.loss)} lost`));
  await expect(page.locator("[data-regional][data-stays]")).toHaveCount(1); // the others were not drawn anew
});
