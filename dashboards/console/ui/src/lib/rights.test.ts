import { expect, test } from "vitest";
import { lackOf, metricTenants } from "./rights";

const rights = {
  rights: [
    { right: "patch sites.muster.dev", all: false, tenants: ["acme"] },
    { right: "create silences.muster.dev", all: true, tenants: [] },
    { right: "delete silences.muster.dev", all: false, tenants: [] },
  ],
};

test("what is lacking is said, and nothing while nobody knows", () => {
  expect(lackOf(undefined, "patch sites.muster.dev", ["acme"])).toBe("");
  expect(lackOf(rights, "patch sites.muster.dev", ["acme", "acme"])).toBe("");
  expect(lackOf(rights, "patch sites.muster.dev", ["e", "acme", "b", "c", "d", "b"])).toBe("You lack the right to patch sites.muster.dev in b-system, c-system, d-system and 1 more");
  expect(lackOf(rights, "patch sites.muster.dev", [""])).toBe("");
  expect(lackOf(rights, "create silences.muster.dev", ["x"])).toBe("");
  expect(lackOf(rights, "delete silences.muster.dev", [""])).toBe("You lack the right to delete silences.muster.dev in any tenant");
});

test("the platform's own metrics are offered to who may read them", () => {
  const held = (all: boolean, tenants: string[]) => ({ rights: [{ right: "list sites.muster.dev", all, tenants }] });
  expect(metricTenants(undefined, ["acme"])).toEqual(["acme"]);
  expect(metricTenants(held(false, ["acme"]), ["acme"])).toEqual(["acme"]);
  expect(metricTenants(held(false, ["acme", "muster"]), ["acme"])).toEqual(["acme", "muster"]);
  expect(metricTenants(held(true, ["acme"]), ["acme"])).toEqual(["acme", "muster"]);
});
