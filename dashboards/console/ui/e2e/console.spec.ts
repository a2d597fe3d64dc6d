import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "@playwright/test";
import { geoCentroid, geoContains } from "d3-geo";
import type { MultiPolygon } from "geojson";
import { feature } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import type { Explanation, SiteMap } from "../src/api/types";
import { breakSite, canBreak, control, expect, FAULT_TIMEOUT, get, healSite, login, MOCK, mocked, type Registration, sites, test, TOKEN, type VirtualSite } from "./fixtures";

const COLOURS = ["red", "orange", "grey", "green"] as const;

/** The middles of islands in sight that only the outlines of 1:10 million have, and that are a few pixels wide. */
function finest(at: (longitude: number, latitude: number) => [number, number], width: number, height: number): [number, number][] {
  const land = (detail: string) => {
    const atlas = JSON.parse(readFileSync(fileURLToPath(new URL(`../node_modules/world-atlas/countries-${detail}.json`, import.meta.url)), "utf8")) as Topology<{ land: GeometryCollection }>;
    return feature(atlas, atlas.objects.land).features[0]!.geometry as MultiPolygon;
  };
  const coarser = land("50m");
  return land("10m").coordinates.flatMap((coordinates): [number, number][] => {
    const middle = geoCentroid({ type: "Polygon", coordinates });
    const [x, y] = at(...(middle as [number, number]));
    if (x < 20 || y < 20 || x > width - 20 || y > height - 20) return [];
    const xy = coordinates[0]!.map((p) => at(p[0]!, p[1]!));
    const wide = (i: 0 | 1) => Math.max(...xy.map((p) => p[i])) - Math.min(...xy.map((p) => p[i]));
    const inside = [[0, 0], [2, 0], [-2, 0], [0, 2], [0, -2]].every(([dx, dy]) => polygonContains(xy, [x + dx!, y + dy!]));
    return wide(0) > 6 && wide(1) > 6 && inside && !geoContains(coarser, middle) ? [[x, y]] : [];
  });
}

/** Whether a point, in CSS pixels, is in a ring. */
function polygonContains(ring: readonly [number, number][], [x, y]: readonly [number, number]): boolean {
  let inside = false;
  for (const [i, [x1, y1]] of ring.entries()) {
    const [x2, y2] = ring.at(i - 1)!;
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
  }
  return inside;
}

/** Whether the map has the colour of land at points, in CSS pixels. */
const landAt = (page: Page, points: readonly [number, number][]): Promise<boolean[]> =>
  page.locator(".map canvas").evaluate((c: HTMLCanvasElement, all) => {
    const probe = c.parentElement!.appendChild(document.createElement("span"));
    probe.style.color = "var(--land)";
    const ink = document.createElement("canvas").getContext("2d")!;
    ink.fillStyle = getComputedStyle(probe).color;
    probe.remove();
    ink.fillRect(0, 0, 1, 1);
    const want = ink.getImageData(0, 0, 1, 1).data;
    const ratio = c.width / c.clientWidth;
    return all.map(([x, y]) => {
      const d = c.getContext("2d")!.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data;
      return [0, 1, 2].every((i) => Math.abs(d[i]! - want[i]!) < 3);
    });
  }, points);
const legend = (c: string) => `[data-legend="${c}"]`;

test.describe("session", () => {
  test("a login link logs in, and leaves no token behind", async ({ page, context }) => {
    await login(page);
    expect(page.url()).not.toContain("token");
    await expect(page.locator(legend("red"))).toContainText(/\d/);
    const cookie = (await context.cookies()).find((c) => c.name === "muster_session");
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain(TOKEN);
  });

  test("the form refuses a wrong token and takes the right one", async ({ page }) => {
    await page.goto("/virtual-sites");
    await page.getByLabel("Token").fill("no-such-token");
    await page.getByRole("button", { name: "Log in" }).click();
    await expect(page.getByRole("alert")).not.toBeEmpty();
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Log in" }).click();
    await expect(page.getByRole("heading", { level: 1, name: "Virtual sites" })).toBeVisible();
  });

  test("a session that has ended leads to the login page and back", async ({ page, context }) => {
    await login(page, "/virtual-sites");
    await context.clearCookies();
    // The next request finds out: that of the click, or one in the background before it.
    const clicked = await page.getByRole("link", { name: "Rollouts" }).click({ timeout: 5_000 }).then(() => true, () => false);
    await expect(page.getByText("Your session has ended")).toBeVisible();
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Log in" }).click();
    await expect(page.getByRole("heading", { level: 1, name: clicked ? "Rollouts" : "Virtual sites" })).toBeVisible();
  });

  test("logging out forgets the session", async ({ page }) => {
    await login(page);
    await page.getByRole("button", { name: "Log out" }).click();
    await expect(page.getByLabel("Token")).toBeVisible();
    expect((await page.request.get("/api/v1/session")).status()).toBe(401);
  });
});

test.describe("fleet", () => {
  test("the map holds every site that has a place", async ({ page }) => {
    await login(page);
    const all = await sites(page);
    await expect(page.locator("[data-mark]").first()).toBeVisible();
    const shown = await page.locator("[data-mark]").evaluateAll((marks) => marks.map((m) => Number(/^([\d,]+) sites/.exec(m.getAttribute("aria-label") ?? "")?.[1]?.replaceAll(",", "") ?? 1)));
    expect(shown.reduce((a, b) => a + b, 0)).toBe(all.filter((s) => s.place).length);
    const unplaced = all.filter((s) => !s.place).length;
    if (unplaced > 0) {
      await expect(page.getByText(new RegExp(`^${unplaced} sites? ha(s|ve) no place`))).toBeVisible();
      await expect(page.getByRole("link", { name: /^List (it|them)$/ })).toHaveAttribute("href", "/sites?q=onMap%3Dfalse");
    }
  });

  mocked("the outlines are drawn", async ({ page }) => {
    await login(page);
    const colours = () =>
      page.locator(".map canvas").evaluate((c: HTMLCanvasElement) => {
        const d = c.getContext("2d")!.getImageData(0, 0, c.width, c.height).data;
        const seen = new Set<string>();
        for (let i = 0; i < d.length; i += 4 * 97) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);
        return seen.size;
      });
    await expect.poll(colours).toBeGreaterThan(4);
  });

  mocked("towns have their names once the map is near, and coasts their islands, and stand where they are", async ({ page }) => {
    interface Drawn {
      name: string;
      /** The town's dot; none where a marker is over it. */
      dot?: [number, number];
    }
    await page.addInitScript(() => {
      const all = window as unknown as { drawn: Drawn[] };
      all.drawn = [];
      const proto = CanvasRenderingContext2D.prototype;
      const { arc, fillText, fillRect } = proto;
      let dot: [number, number] | undefined;
      proto.fillRect = function (x, y, w, h) {
        if (x === 0 && y === 0 && w === this.canvas.width && h === this.canvas.height) all.drawn = []; // the map begins anew
        fillRect.call(this, x, y, w, h);
      };
      proto.arc = function (x, y, r, ...angles) {
        if (r < 2) dot = [x, y];
        arc.call(this, x, y, r, ...angles);
      };
      proto.fillText = function (name, x, y) {
        if (this.textAlign === "left") all.drawn.push({ name, ...(dot && { dot }) }); // countries' names are in the middle of them
        dot = undefined;
        fillText.call(this, name, x, y);
      };
    });
    type Town = [name: string, latitude: number, longitude: number, thousands: number];
    const gazetteer: Town[] = [];
    page.on("response", async (r) => {
      if (/\/assets\/(cities|towns)-\w+\.json$/.test(r.url())) for (const t of (await r.json()) as Town[]) gazetteer.push(t);
    });
    const drawn = () => page.evaluate(() => (window as unknown as { drawn: Drawn[] }).drawn);
    await login(page);
    const place = (await sites(page)).find((s) => s.place && (!MOCK || s.name === "copenhagen-01"))!;
    await page.goto(`/?q=${encodeURIComponent(`name=${place.name} tenant=${place.tenant}`)}`);
    await expect(page.locator("[data-mark]")).toHaveCount(1);
    let least = Infinity;
    for (let i = 0; i < 3; i++) {
      await expect.poll(async () => (await drawn()).length, { timeout: 60_000 }).toBeGreaterThan(2); // outlines and towns are megabytes to be cut up
      let towns: Drawn[] = [];
      await expect.poll(async () => JSON.stringify(towns) === JSON.stringify((towns = await drawn()))).toBe(true); // it has come to rest
      const known = towns.map(({ name, dot }) => {
        const far = (t: Town) => Math.hypot(t[1] - place.place!.latitude, t[2] - place.place!.longitude);
        const [, latitude, longitude, thousands] = gazetteer.filter((t) => t[0] === name).sort((a, b) => far(a) - far(b))[0]!;
        const s = Math.sin((latitude * Math.PI) / 180);
        return { name, dot, thousands, x: longitude / 360, y: -Math.log((1 + s) / (1 - s)) / (4 * Math.PI) };
      });
      const dots = known.filter((t) => t.dot).sort((a, b) => a.x - b.x);
      const [west, east] = [dots[0]!, dots.at(-1)!];
      const scale = (east.dot![0] - west.dot![0]) / (east.x - west.x); // as wide as the whole world would be
      for (const t of dots) {
        expect(Math.abs(t.dot![0] - west.dot![0] - scale * (t.x - west.x)), t.name).toBeLessThan(2);
        expect(Math.abs(t.dot![1] - west.dot![1] - scale * (t.y - west.y)), t.name).toBeLessThan(2);
      }
      least = Math.min(least, ...known.map((t) => t.thousands));
      if (MOCK && i === 0) {
        const box = (await page.locator(".map canvas").boundingBox())!;
        const at = (longitude: number, latitude: number): [number, number] => {
          const s = Math.sin((latitude * Math.PI) / 180);
          return [west.dot![0] + scale * (longitude / 360 - west.x), west.dot![1] + scale * (-Math.log((1 + s) / (1 - s)) / (4 * Math.PI) - west.y)];
        };
        const islands = finest(at, box.width, box.height);
        expect(islands.length).toBeGreaterThan(3);
        // A name may stand over one or the other.
        await expect.poll(() => landAt(page, islands).then((l) => l.filter(Boolean).length / l.length)).toBeGreaterThan(0.7);
      }
      await page.getByRole("button", { name: "Zoom in" }).click();
    }
    expect(least).toBeLessThan(60); // thousands of people: a town and no city
    // On the whole world they would be noise.
    for (let i = 0; i < 20; i++) await page.getByRole("button", { name: "Zoom out" }).click();
    await expect.poll(async () => (await drawn()).length).toBe(0);
  });

  test("the legend counts, and filters list, map and address", async ({ page }) => {
    await login(page);
    await expect(page.locator("[data-site]").first()).toBeVisible();
    if (MOCK) {
      const all = await sites(page);
      for (const c of COLOURS) await expect(page.locator(`${legend(c)} b`)).toHaveText(String(all.filter((s) => s.colour === c).length));
    }
    await page.locator(legend("red")).click();
    await expect(page.locator(legend("red"))).toHaveAttribute("aria-pressed", "true");
    await expect(page).toHaveURL(/colour%3Dred/);
    await expect(page.locator('[data-site] .shape:not([data-colour="red"])')).toHaveCount(0);
    await expect(page.locator('[data-mark]:not([data-colour="red"])')).toHaveCount(0);
    await page.reload();
    await expect(page.locator(legend("red"))).toHaveAttribute("aria-pressed", "true");
    await page.locator(legend("orange")).click();
    await expect(page).toHaveURL(/colour\+in/);
    await expect(page.locator(legend("red"))).toHaveAttribute("aria-pressed", "true");
    await page.locator(legend("orange")).click();
    await page.locator(legend("red")).click();
    await expect(page).not.toHaveURL(/colour/);
  });

  test("searches with the inventory's query language", async ({ page }) => {
    await login(page);
    const all = await sites(page);
    const target = all[Math.floor(all.length / 2)]!;
    await page.getByRole("combobox", { name: "Query" }).fill(`name=${target.name}`);
    await expect(page.locator("[data-site]").first()).toHaveAttribute("data-site", `${target.tenant}/${target.name}`);
    await page.getByRole("combobox", { name: "Query" }).fill('"no such site anywhere"');
    await expect(page.getByRole("heading", { name: "No site matches" })).toBeVisible();
    await page.getByRole("combobox", { name: "Query" }).fill("score<");
    await expect(page.getByRole("alert").first()).toContainText("needs a value");
    await page.getByRole("combobox", { name: "Query" }).fill(`region=${target.region}`);
    const n = all.filter((s) => s.region === target.region).length;
    await expect(page.getByText(`${n} of ${all.length} sites`)).toBeVisible();
    await expect(page.getByRole("link", { name: "Table" })).toHaveAttribute("href", `/sites?q=region%3D${target.region}`);
  });

  test("colours by what is asked for, in the markers, their words and the legend alike", async ({ page }) => {
    await login(page);
    const key = page.locator(".paint-key li");
    const strokes = async () => JSON.stringify((await drawn()).map((m) => m.colours));
    /** What the markers are drawn with, and what they say: of each kind how many. */
    const drawn = () =>
      page.locator("[data-mark]").evaluateAll((marks) =>
        marks.map((m) => ({ label: m.getAttribute("aria-label")!, colours: [...m.querySelectorAll("circle")].map((c) => (c.hasAttribute("stroke-dasharray") ? c.getAttribute("stroke")! : c.getAttribute("fill")!)).filter((c) => /^var\(--(step|kind)/.test(c)) })),
      );
    await expect(page.locator("[data-mark]").first()).toBeVisible();
    let before = await strokes();
    for (const [by, of] of [["connectivity", "Connectivity"], ["version", "Agent"], ["cpuUsed", "CPU used"], ["memoryUsed", "Memory used"]] as const) {
      await page.getByLabel("Colour by").selectOption(by);
      await expect(page).toHaveURL(new RegExp(`by=${by}`));
      await expect(page.getByRole("list", { name: `Colours by ${of}, on the map` })).toBeVisible();
      await expect(async () => {
        const map = await get<SiteMap>(page, `/api/v1/site-map?by=${by}`);
        const unit = by.endsWith("Used") ? " %" : "";
        const kinds = map.values ? [...[0, 20, 40, 60, 80].map((n) => `${n}–${n + 20}${unit}`), "not known"] : [...map.categories!.slice(0, 8).map((c) => c || "none"), "others"];
        const kind = (i: number) => (map.values ? (map.values[i] === null ? 5 : Math.min(4, Math.floor(map.values[i]! / 20))) : map.category![i]!);
        const counts = kinds.map((_, k) => map.names.filter((_, i) => kind(i) === k).length);
        expect(counts.filter((n) => n > 0).length).toBeGreaterThan(MOCK ? 1 : 0); // all may run one version
        await expect(key).toHaveText(kinds.map((k, i) => `${k} ${counts[i]}`), { timeout: 1000 });
        const colours = await key.locator("circle").evaluateAll((all) => all.map((c) => c.getAttribute("fill")!));
        expect(new Set(colours).size).toBe(kinds.length);
        // Of each marker, and of all together: they say how many of what, and are drawn in these colours.
        const sum = kinds.map(() => 0);
        for (const m of await drawn()) {
          const said = new RegExp(`; ${of}: (.*?)(\\. Opens the cluster)?$`).exec(m.label)!;
          const parts = said[2] ? said[1]!.split(", ").map((p) => /^([\d,]+) (.*)$/.exec(p)!) : [["", "1", said[1]!]];
          const held = kinds.map((k) => Number(parts.find((p) => p[2] === k)?.[1]!.replaceAll(",", "") ?? 0));
          for (const [k, n] of held.entries()) sum[k]! += n;
          expect(m.colours, m.label).toEqual(colours.filter((_, k) => held[k]! > 0));
          if (said[2]) expect(m.label.startsWith(`${held.reduce((a, b) => a + b, 0)} sites: `), m.label).toBe(true);
        }
        expect(sum).toEqual(counts);
      }).toPass({ timeout: 20_000 });
      const now = await strokes();
      expect(now).not.toBe(before);
      before = now;
    }
    await page.reload();
    await expect(page.getByLabel("Colour by")).toHaveValue("memoryUsed");
    await expect(page.getByRole("list", { name: "Colours by Memory used, on the map" })).toBeVisible();
    await page.getByLabel("Colour by").selectOption("");
    await expect(key).toHaveCount(0);
    await expect.poll(async () => (await drawn()).every((m) => m.colours.length === 0)).toBe(true);
  });

  test("the list is sorted, the worst first", async ({ page }) => {
    await login(page);
    await expect(page.locator("[data-site]").first()).toBeVisible();
    const shown = await page.locator("[data-site] .shape").evaluateAll((s) => s.map((x) => x.getAttribute("data-colour")!));
    const order = ["red", "orange", "green", "grey"]; // by score; what is not known comes last
    expect(shown.map((c) => order.indexOf(c))).toEqual(shown.map((c) => order.indexOf(c)).sort());
  });

  mocked("is usable with the keyboard alone", async ({ page }) => {
    await login(page);
    await expect(page.locator(".marker.cluster").first()).toBeVisible();
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-mark") ?? "");
    // Tab leads from the legend into the map, the worst marker first.
    await page.getByRole("button", { name: "Maintenance" }).focus();
    await page.keyboard.press("Tab");
    const first = await focused();
    expect(first).not.toBe("");
    await page.keyboard.press("Tab");
    expect(await focused()).not.toBe(first);
    await page.keyboard.press("Shift+Tab");
    // Arrows go to a neighbour.
    for (const key of ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"]) {
      await page.keyboard.press(key);
      if ((await focused()) !== first) break;
    }
    expect(await focused()).not.toBe(first);
    // Enter opens a cluster and goes inside; Escape leads back to it.
    const cluster = page.locator(".marker.cluster").first();
    const id = await cluster.getAttribute("data-mark");
    const size = /^[\d,]+ sites/.exec((await cluster.getAttribute("aria-label"))!)![0]; // their colours may change meanwhile
    const whole = page.locator(`[data-mark="${id}"][aria-label^="${size}:"]`);
    await cluster.focus();
    await page.keyboard.press("Enter");
    await expect(whole).toHaveCount(0);
    await expect.poll(focused).not.toBe("");
    await page.keyboard.press("Escape");
    await expect(whole).toHaveCount(1);
    await expect.poll(focused).toBe(id);
    // Enter often enough ends at a site, or at the list of those at one place.
    for (let i = 0; i < 25 && !/\/sites\//.test(page.url()); i++) {
      const before = await focused();
      await page.keyboard.press("Enter");
      await page.waitForFunction((b) => location.pathname.startsWith("/sites/") || (document.activeElement?.hasAttribute("data-mark") && document.activeElement.getAttribute("data-mark") !== b) || document.querySelector(".map-place"), before, { timeout: 3000 }).catch(() => undefined);
      const atOnePlace = page.locator(".map-place li a").first();
      if (await atOnePlace.isVisible()) await atOnePlace.press("Enter");
    }
    await expect(page).toHaveURL(/\/sites\//);
    await page.goBack();
    await expect(page.locator(".map")).toBeVisible();
  });

  mocked("the map keeps the focus while it moves, however slowly", async ({ page }) => {
    await page.addInitScript(() => {
      window.requestAnimationFrame = (f) => window.setTimeout(() => f(performance.now()), 100);
      window.cancelAnimationFrame = (id) => window.clearTimeout(id);
    });
    await login(page);
    const cluster = page.locator(".marker.cluster").first();
    await cluster.focus();
    const id = await cluster.getAttribute("data-mark");
    const size = /^[\d,]+ sites/.exec((await cluster.getAttribute("aria-label"))!)![0];
    const whole = page.locator(`[data-mark="${id}"][aria-label^="${size}:"]`);
    const outside = () => page.evaluate(() => (document.activeElement?.closest(".map") ? "" : document.activeElement?.tagName));
    await page.keyboard.press("Enter");
    for (let i = 0; i < 12; i++) {
      expect(await outside()).toBe("");
      await page.waitForTimeout(80);
    }
    await expect(whole).toHaveCount(0);
    await page.keyboard.press("Escape");
    await expect(whole).toBeFocused();
  });

  mocked("the list is usable with arrow keys", async ({ page }) => {
    await login(page);
    await page.locator("[data-site]").first().focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    expect(await page.evaluate(() => document.activeElement?.getAttribute("data-index"))).toBe("2");
    await page.keyboard.press("End");
    const last = (await sites(page)).length - 1;
    await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute("data-index"))).toBe(String(last));
  });

  mocked("10,000 sites are no burden", async ({ page }) => {
    await login(page, "/policies");
    const [one] = await sites(page);
    const names = Array.from({ length: 10_000 }, (_, i) => `site-${String(i).padStart(5, "0")}`);
    const counts = { green: 2500, orange: 2500, red: 2500, grey: 2500 };
    const asOf = new Date().toISOString();
    await page.route("**/api/v1/health/stream**", (r) => r.abort()); // a real fleet's changes would join the made-up list
    await page.route(/\/api\/v1\/site-map(\?|$)/, (r) =>
      r.fulfill({
        json: {
          asOf, readable: 10_000, total: 10_000, unplaced: 0, maintenance: 0, counts, tenants: [one!.tenant], names, tenant: names.map(() => 0), latitude: names.map((_, i) => ((i * 7919) % 12_000) / 100 - 50),
          longitude: names.map((_, i) => ((i * 104_729) % 34_000) / 100 - 170), colour: "rogx".repeat(2500), score: names.map(() => 50), inMaintenance: [], by: "", kind: "", notes: [],
        },
      }),
    );
    await page.route("**/api/v1/sites?**", (r) => {
      const p = new URL(r.request().url()).searchParams;
      const [from, limit] = [Number(p.get("cursor") ?? 0), Number(p.get("limit") ?? 100)];
      const rows = names.slice(from, from + limit).map((name) => ({ name, tenant: one!.tenant, colour: "red", score: 20, reason: "", phase: "Online", lastSeen: asOf, maintenance: false, region: "eu" }));
      return r.fulfill({ json: { asOf, columns: [], readable: 10_000, total: 10_000, counts, sites: rows, notes: [], ...(from + limit < 10_000 && limit > 0 ? { nextCursor: String(from + limit) } : {}) } });
    });
    await page.goto("/");
    await expect(page.getByText("10,000 sites, worst first")).toBeVisible({ timeout: 90_000 });
    expect(await page.locator("[data-site]").count()).toBeLessThan(60);
    expect(await page.locator("[data-mark]").count()).toBeLessThan(500);
    await expect(page.locator(`${legend("red")} b`)).toHaveText("2,500");
  });
});

test.describe("live", () => {
  test("a fault turns the site red without a reload", async ({ page }) => {
    test.skip(!canBreak, "set E2E_BREAK and E2E_HEAL to commands with {site}");
    test.setTimeout(FAULT_TIMEOUT * 3 + 30_000);
    await login(page);
    const victim = (await sites(page)).reverse().find((s) => s.colour === "green" && s.place && s.phase === "Online" && s.maintenance === null)!;
    await page.getByRole("combobox", { name: "Query" }).fill(`name=${victim.name}`);
    const row = page.locator(`[data-site="${victim.tenant}/${victim.name}"]`);
    const mark = page.locator(`[data-mark="${victim.tenant}/${victim.name}"]`);
    await expect(row.locator(".shape")).toHaveAttribute("data-colour", "green");
    await expect(mark).toHaveAttribute("data-colour", "green");
    await expect(page.locator("[data-live=live]")).toBeVisible();
    const requests: string[] = [];
    page.on("request", (r) => requests.push(r.url()));
    try {
      await breakSite(page, victim);
      await expect(mark).toHaveAttribute("data-colour", "red", { timeout: FAULT_TIMEOUT });
      await expect(row.locator(".shape")).toHaveAttribute("data-colour", "red");
      await expect(row).toContainText("offline");
      expect(requests.filter((u) => u.includes("/health/sites?"))).toEqual([]); // it came by the stream
      await page.getByRole("button", { name: "Changes" }).click();
      await expect(page.getByRole("list", { name: /Changes of colour/ })).toContainText(victim.name);
    } finally {
      await healSite(page, victim);
    }
    await expect(mark).toHaveAttribute("data-colour", "green", { timeout: 3 * FAULT_TIMEOUT });
  });

  mocked("an engine that stands still is shown, though the connection lives", async ({ page }) => {
    await control(page, "stop");
    await page.route("**/api/v1/sites?**", async (r) => {
      const res = await r.fetch();
      await r.fulfill({ response: res, json: { ...(await res.json()), asOf: new Date(Date.now() - 10 * 60_000).toISOString() } });
    });
    await login(page);
    await expect(page.locator("[data-live=stale]")).toContainText("Stale since");
  });

  mocked("a lost stream is shown, comes back, and what was missed is read", async ({ page }) => {
    await login(page);
    await expect(page.locator("[data-live=live]")).toBeVisible();
    const victim = (await sites(page)).reverse().find((s) => s.colour === "green" && s.place)!;
    await page.getByRole("combobox", { name: "Query" }).fill(`name=${victim.name}`);
    await page.route("**/api/v1/health/stream**", (r) => r.abort());
    await control(page, "drop");
    await expect(page.locator("[data-live=reconnecting]")).toBeVisible();
    await breakSite(page, victim);
    await page.unroute("**/api/v1/health/stream**");
    await expect(page.locator("[data-live=live]")).toBeVisible({ timeout: 90_000 });
    await expect(page.locator(`[data-mark="${victim.tenant}/${victim.name}"]`)).toHaveAttribute("data-colour", "red");
  });
});

test.describe("pages", () => {
  test("a site's page explains its score", async ({ page }) => {
    await login(page);
    const worst = (await sites(page)).filter((s) => s.reasons.length > 0).sort((a, b) => b.reasons.length - a.reasons.length)[0]!;
    await page.goto(`/sites/${worst.name}?tenant=${worst.tenant}`);
    await expect(page.getByRole("heading", { level: 1, name: worst.name })).toBeVisible();
    await expect(page.locator("[data-dimension]")).toHaveCount(4);
    await expect(async () => {
      // A real site's score moves, and its page with it.
      const now = (await sites(page)).find((s) => s.tenant === worst.tenant && s.name === worst.name)!;
      await expect(page.locator("[data-site-colour]")).toHaveAttribute("data-site-colour", now.colour, { timeout: 1000 });
      await expect(page.locator("ol.reasons li").first()).toContainText(now.reasons[0]!.text.slice(0, 12), { timeout: 1000 });
    }).toPass({ timeout: 20_000 });
    await expect(page.getByRole("img", { name: /^Score over the last 1 h/ })).toBeVisible();
    await page.getByRole("button", { name: "6 h" }).click();
    await expect(page.getByRole("img", { name: /^Score over the last 6 h/ })).toBeVisible();
    // What is well is a click away.
    const losing = await page.locator("tr[data-signal]").count();
    await page.getByRole("region", { name: "Signals" }).getByRole("button", { name: "Show all" }).click();
    expect(await page.locator("tr[data-signal]").count()).toBeGreaterThan(Math.max(3, losing));
    if (MOCK) {
      await expect(page.locator('[data-condition="PolicyApplied"]')).toBeHidden();
      await page.getByText(/conditions? well|others? well/).click();
      await expect(page.locator('[data-condition="PolicyApplied"]')).toBeVisible();
    }
    for (const name of ["Facts", "Versions", "Labels", "Conditions"]) await expect(page.getByRole("region", { name, exact: true })).toBeVisible();
  });

  test("the score leads to its arithmetic, and back", async ({ page }) => {
    await login(page);
    const worst = (await sites(page)).filter((s) => s.reasons.length > 1 && s.score !== null).sort((a, b) => b.reasons.length - a.reasons.length)[0]!;
    await page.goto(`/sites/${worst.name}?tenant=${worst.tenant}`);
    // What costs points stands first, and what the site can't have is folded away.
    await expect(page.locator("tr[data-signal]").first()).toHaveAttribute("data-signal", worst.reasons[0]!.signal);
    if (MOCK) {
      await expect(page.locator('tr[data-signal="gpu-hot"]')).toHaveCount(0);
      await expect(page.getByText("2 signals do not apply to this site")).toBeVisible();
      await page.getByRole("button", { name: "Show them" }).click();
      await expect(page.locator('tr[data-signal="gpu-hot"]')).toContainText("no gpu here");
    }
    await page.locator("[data-site-colour] a").click();
    await expect(page.getByRole("heading", { level: 1, name: `Score of ${worst.name}` })).toBeVisible();
    await expect(page.locator("[data-dimension]")).toHaveCount(4);
    await expect(page.locator("[data-lost]").first()).toHaveAttribute("data-lost", worst.reasons[0]!.signal);
    await page.getByRole("link", { name: `← ${worst.name}` }).click();
    await expect(page.getByRole("heading", { level: 1, name: worst.name, exact: true })).toBeVisible();
  });

  test("the arithmetic is the CLI's, figure by figure", async ({ page }) => {
    // The engine's answer to `muster health explain paris-07`, and what the CLI writes of it.
    const testdata = fileURLToPath(new URL("../../../../health/api/testdata/", import.meta.url));
    const x = JSON.parse(readFileSync(`${testdata}explanation.json`, "utf8")) as Explanation;
    const text = readFileSync(`${testdata}explanation.txt`, "utf8");
    await page.route("**/api/v1/health/sites/paris-07/explain?**", (r) => r.fulfill({ json: x }));
    await login(page, "/sites/paris-07/score?tenant=acme");
    await expect(page.locator("[data-sum]")).toBeVisible();
    const show = page.getByRole("button", { name: /^Show the signals of/ });
    for (let left = await show.count(); left > 0; left--) {
      await show.first().click();
      await expect(show).toHaveCount(left - 1);
    }
    const absent = /that do not apply \((\d+)\)/.exec(text)![1]!;
    await page.getByText(`${absent} signals do not apply to this site`).click();
    const shown = (await page.locator("main").innerText()).replace(/\s+/g, " ");
    // Sentences: the formula, the caps, what the colour waits for, the sum.
    const sentences = text.split("\n").filter((l) => /^(cap|the colour)/.test(l) || /^100 − /.test(l));
    expect(sentences.length).toBeGreaterThan(3);
    for (const l of [...sentences.map((s) => s.replace("  ← counts", "")), x.formula]) {
      expect(text).toContain(l);
      expect(shown).toContain(l);
    }
    await expect(page.locator("[data-binds=true]")).toHaveCount(1);
    await expect(page.locator("[data-binds=true]")).toHaveAttribute("data-cap", /^cap of ([^:]+):.*← counts$/m.exec(text)![1]!);
    // Points, in order.
    const lost = text.split("\n").filter((l) => l.startsWith("−"));
    await expect(page.locator("[data-lost]")).toHaveCount(lost.length);
    for (const [i, l] of lost.entries()) {
      const [, points, words] = /^(−\S+)\s+\w+\s+(.+)$/.exec(l)!;
      await expect(page.locator("[data-lost]").nth(i)).toContainText(points!);
      await expect(page.locator("[data-lost]").nth(i)).toContainText(words!);
    }
    // Every dimension, and every signal that the CLI has a line for.
    for (const d of x.dimensions) {
      const line = new RegExp(`^${d.name}\\s+(\\S+)`, "m").exec(text)!;
      await expect(page.locator(`[data-dimension=${d.name}] h3`)).toContainText(line[1]!);
      const capped = new RegExp(`^${d.name} .*(capped at \\S+)`, "m").exec(text);
      if (capped) await expect(page.locator(`[data-dimension=${d.name}] h3`)).toContainText(capped[1]!);
      for (const s of d.signals.filter((s) => s.applies)) {
        const row = page.locator(`tr[data-signal="${s.name}"]`);
        const cli = new RegExp(`^  ${s.name}\\s+(\\S+(?: \\S+)*)\\s{2,}(.+)$`, "m").exec(text);
        if (!cli) {
          expect(s.score, s.name).toBe(1); // the CLI leaves out what is well
          continue;
        }
        const said = ((await row.innerText()) + "").replace(/\s+/g, " ");
        if (s.score === null) expect(said).toContain(s.error);
        else {
          expect(said).toContain(cli[1]!);
          expect(said.toLowerCase()).toContain(/between good \S+( \w+)? and bad \S+/.exec(cli[2]!)![0]);
        }
      }
    }
    await expect(page.getByText(/: no openebs here$/)).toHaveCount(2);
  });

  mocked("a policy in shadow is shown beside, and counts for nothing", async ({ page }) => {
    await login(page);
    const s = (await sites(page)).find((x) => x.colour === "green")!;
    await control(page, "shadow", { tenant: s.tenant, site: s.name });
    await page.goto(`/sites/${s.name}?tenant=${s.tenant}`);
    await expect(page.locator("[data-shadow=orange]")).toContainText("Policy next, in shadow");
    await expect(page.locator("[data-site-colour]")).toHaveAttribute("data-site-colour", "green");
    await page.getByRole("link", { name: "How that score comes about" }).click();
    await expect(page.getByText("in shadow: counts for nothing")).toBeVisible();
    await expect(page.getByText("policy next")).toBeVisible();
    const list = await get<{ policies: object[] }>(page, "/api/v1/health/policies");
    await page.route("**/api/v1/health/policies", (r) => r.fulfill({ json: { policies: [{ ...list.policies[0], name: "next", shadow: true, wouldChange: 1, examples: ["paris-07: green → orange: hot"] }] } }));
    await page.goto("/policies");
    await expect(page.locator("[data-would-change='1']")).toContainText("paris-07: green → orange: hot");
  });

  mocked("a score that can't be explained says why", async ({ page }) => {
    await login(page);
    const s = (await sites(page)).find((x) => x.phase === "Approved")!;
    await page.goto(`/sites/${s.name}/score?tenant=${s.tenant}`);
    await expect(page.getByRole("heading", { name: `${s.name} has no score yet` })).toBeVisible();
    await page.goto("/sites/no-such-site/score");
    await expect(page.getByRole("heading", { name: "There is no such site" })).toBeVisible();
    await page.route("**/explain?**", (r) => r.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Service Unavailable", status: 503, detail: "the health engine can't be reached; it may be starting" }) }));
    await page.goto(`/sites/${s.name}/score?tenant=${s.tenant}`);
    await expect(page.getByRole("alert")).toContainText("the health engine can't be reached");
    await expect(page.getByRole("button", { name: "Try again" })).toBeVisible();
  });

  mocked("a signal whose query fails shows its error", async ({ page }) => {
    await login(page);
    const s = (await sites(page)).find((x) => x.colour === "green")!;
    await control(page, "blind", { tenant: s.tenant, site: s.name, signal: "disk-used" });
    await page.goto(`/sites/${s.name}?tenant=${s.tenant}`);
    await expect(page.locator('tr[data-signal="disk-used"]')).toContainText("many-to-many");
    await expect(page.getByText("1 query fails")).toBeVisible();
  });

  mocked("history that can't be read does not take the page with it", async ({ page }) => {
    await login(page);
    const [s] = await sites(page);
    await page.route("**/api/v1/metrics/query_range**", (r) => r.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Service Unavailable", status: 503, detail: "the metric store can't be reached" }) }));
    await page.goto(`/sites/${s!.name}?tenant=${s!.tenant}`);
    await expect(page.getByRole("alert")).toContainText("the metric store can't be reached", { timeout: 60_000 }); // the page asks twice before it says so
    await expect(page.locator("[data-dimension]")).toHaveCount(4);
  });

  mocked("maintenance starts and ends", async ({ page }) => {
    await login(page);
    const s = (await sites(page)).find((x) => x.maintenance === null)!;
    await page.goto(`/sites/${s.name}?tenant=${s.tenant}`);
    await page.getByRole("button", { name: "Start maintenance…" }).click();
    await page.getByRole("button", { name: "Start maintenance", exact: true }).click();
    await expect(page.getByText("Say why")).toBeVisible();
    await page.getByLabel("Reason", { exact: true }).fill("new switch, OPS-1");
    await page.getByLabel("How long").selectOption("4h");
    await page.getByRole("button", { name: "Start maintenance", exact: true }).click();
    await expect(page.getByText("In maintenance")).toBeVisible();
    await expect(page.getByText("new switch, OPS-1")).toBeVisible();
    await page.getByRole("button", { name: "End maintenance" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End maintenance" }).click();
    await expect(page.getByText("In maintenance")).toHaveCount(0);
  });

  mocked("a factory reset is asked for by the site's name, followed and taken back", async ({ page }) => {
    test.setTimeout(90_000);
    await login(page);
    const online = (await sites(page)).filter((x) => x.phase === "Online");
    let accepted = "";
    for (const s of online.reverse()) {
      await page.goto(`/sites/${s.name}?tenant=${s.tenant}`);
      const card = page.getByRole("region", { name: "Factory reset" });
      await card.getByRole("button", { name: "Reset…" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Reset the site" }).click();
      await expect(dialog.getByRole("alert")).toContainText(`Type ${s.name}`);
      await dialog.getByLabel("Name of the site").fill(s.name);
      await dialog.getByLabel("Wait for the site").selectOption("24h");
      await dialog.getByRole("button", { name: "Reset the site" }).click();
      await expect(dialog).toHaveCount(0);
      await expect(card).toContainText("The site is asked");
      await expect(page.locator(".note.slim", { hasText: "Factory reset" })).toBeVisible();
      if (!accepted) {
        await card.getByRole("button", { name: "Take it back…" }).click();
        await page.getByRole("dialog").getByRole("button", { name: "Take it back" }).click();
        await expect(card).toContainText("The request was taken back");
        accepted = s.name;
        continue;
      }
      await expect(card).toContainText(/The site is back, with a new key|factoryReset\.enabled/, { timeout: 30_000 });
      await expect(page.locator(".note.slim", { hasText: "Factory reset" })).toHaveCount(0);
      if ((await card.textContent())!.includes("with a new key")) return;
    }
    throw new Error("no site took a reset");
  });

  test("virtual sites lead to their members", async ({ page }) => {
    await login(page);
    const { virtualSites } = await get<{ virtualSites: VirtualSite[] }>(page, "/api/v1/health/virtualsites?limit=1000");
    const big = virtualSites.sort((a, b) => b.sites - a.sites)[0]!;
    await page.getByRole("link", { name: "Virtual sites" }).click();
    await page.locator(`a[href="/virtual-sites/${big.namespace}/${big.name}?tenant=${big.tenant}"]`).click();
    await expect(page.getByRole("heading", { level: 1, name: `${big.namespace}/${big.name}` })).toBeVisible();
    await expect(page.getByRole("list", { name: /^Members of/ }).getByRole("listitem").first()).toHaveAttribute("aria-setsize", String(big.sites));
    await expect(page.locator("[data-mark]").first()).toBeVisible();
  });

  test("a machine is approved with labels and a place", async ({ page }) => {
    await login(page, "/registrations");
    const list = (await get<{ registrations: Registration[] }>(page, "/api/v1/registrations")).registrations;
    test.skip(list.length === 0, "nothing waits for approval");
    const r = list.at(-1)!;
    await expect(page.getByRole("button", { name: /^Manage/ })).toContainText(String(list.length));
    await page.getByRole("button", { name: `Approve ${r.name}` }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Add a label" }).click();
    await dialog.getByLabel("Label name").last().fill("not a label");
    await dialog.getByRole("button", { name: "Approve" }).click();
    await expect(dialog.getByRole("alert")).toBeVisible();
    await dialog.getByLabel("Label name").last().fill("tier");
    await dialog.getByLabel("Value of tier").fill("gold");
    await dialog.getByLabel("Latitude").fill("52.52, 13.405"); // as a map copies it
    await expect(dialog.getByLabel("Longitude")).toHaveValue("13.405");
    await dialog.getByLabel("Address").fill("Berlin");
    const sent = page.waitForRequest((q) => q.url().includes("/approve"));
    await dialog.getByRole("button", { name: "Approve" }).click();
    expect((await sent).postDataJSON()).toEqual({ labels: { tier: "gold" }, place: { latitude: 52.52, longitude: 13.405, address: "Berlin" }, publicKey: r.publicKey });
    await expect(page.getByText(`${r.name} is approved`)).toBeVisible();
    await expect(page.locator(`[data-registration="${r.tenant}/${r.name}"]`)).toHaveCount(0);
  });

  mocked("rejecting asks first; then nothing waits, and the page says how to make a token", async ({ page }) => {
    await login(page, "/registrations");
    await expect(page.locator("[data-registration]").first()).toBeVisible();
    for (let left = await page.locator("[data-registration]").count(); left > 0; left--) {
      await page.getByRole("button", { name: /^Reject/ }).first().click();
      await page.getByRole("dialog").getByRole("button", { name: "Reject" }).click();
      await expect(page.locator("[data-registration]")).toHaveCount(left - 1);
    }
    await expect(page.getByText("muster token create", { exact: true })).toBeVisible();
  });

  mocked("an error says what happened, and trying again helps", async ({ page }) => {
    await login(page, "/policies");
    const detail = "the health engine can't be reached; it may be starting";
    await page.route(/\/api\/v1\/site(s|-map)\?/, (r) => r.fulfill({ status: 500, contentType: "application/problem+json", body: JSON.stringify({ type: "urn:x", title: "Internal Server Error", status: 500, detail }) }));
    await page.goto("/");
    const told = page.getByRole("alert").filter({ hasText: detail });
    await expect(told.first()).toBeVisible();
    await page.unroute(/\/api\/v1\/site(s|-map)\?/);
    await page.getByRole("button", { name: "Try again" }).first().click();
    await expect(page.locator("[data-site]").first()).toBeVisible();
    await expect(page.locator("[data-mark]").first()).toBeVisible();
    await expect(told).toHaveCount(0);
  });

  test("what is not there is said so", async ({ page }) => {
    await login(page, "/nowhere/at/all");
    await expect(page.getByRole("heading", { name: "There is no such page" })).toBeVisible();
    await page.goto("/sites/no-such-site");
    await expect(page.getByRole("heading", { name: "There is no such site" })).toBeVisible();
    await page.goto("/virtual-sites/shared/no-such-one");
    await expect(page.getByRole("heading", { name: "There is no such virtual site" })).toBeVisible();
  });

  mocked("a fleet without sites tells how to begin", async ({ page }) => {
    await control(page, "empty");
    await login(page);
    await expect(page.getByRole("heading", { name: "No sites yet" })).toBeVisible();
    await expect(page.getByText("muster token create")).toBeVisible();
  });

  mocked("the theme can be chosen, and stays", async ({ page }) => {
    await page.emulateMedia({ colorScheme: "light" });
    await login(page);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.getByRole("button", { name: /^Theme/ }).click();
    await page.getByRole("button", { name: /^Theme/ }).click();
    await expect.poll(background).not.toBe(light);
    const dark = await background();
    await page.reload();
    expect(await background()).toBe(dark);
  });
});
