import { expect, it } from "vitest";
import { EXAMPLES } from "../e2e/routes.mjs";
import { routeOf, ROUTES } from "./pages";

const found = {
  sites: [{ name: "x", tenant: "t", reasons: [] }],
  virtualSites: [{ name: "x", namespace: "n", tenant: "t" }],
  pods: [{ name: "x" }],
  alerts: [{ fingerprint: "f", tenant: "t" }],
};

it("axe is asked about each route, and there is a picture of it", async () => {
  expect(Object.keys(EXAMPLES).sort()).toEqual(ROUTES.map((r) => r.path).sort());
  for (const [route, { address }] of Object.entries(EXAMPLES)) {
    const { pathname } = new URL(await address(() => Promise.resolve(found)), "http://console");
    expect(routeOf(pathname)?.path).toBe(route);
  }
  const names = Object.values(EXAMPLES).map((e) => e.name);
  expect(names).toEqual([...new Set(names)]);
});

it("an address leads to its route in any case, with or without a slash at its end", () => {
  expect(["/", "/logs", "/Logs/", "/sites/paris-01/score", "/workloads/deploy", "/nowhere", "/sites/a/b/c"].map((p) => routeOf(p)?.path)).toEqual(["/", "/logs", "/logs", "/sites/:name/score", "/workloads/deploy", undefined, undefined]);
});
