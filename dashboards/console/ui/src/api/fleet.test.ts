import { expect, it } from "vitest";
import { Colours, mergeVirtualSites } from "./fleet";
import type { Colour, SiteChange, SiteMap, VirtualSite } from "./types";

const site = (name: string, colour: Colour | undefined = "green"): SiteChange => ({ tenant: "acme", name, colour, phase: "Online" });
const map = (colour: string, ...names: string[]) => ({ tenants: ["acme"], tenant: names.map(() => 0), names, colour }) as unknown as SiteMap;
const turned = (c: Colours, ...sites: SiteChange[]) => c.apply({ type: "sites", asOf: null, sites }, 1000, (s) => `${s.name} has turned`).map((x) => `${x.site.name}: ${x.from} to ${x.to}, ${x.text}`);

it("tells changes of colour against what was heard last", () => {
  const c = new Colours();
  expect(turned(c, site("a", "red"))).toEqual([]); // nobody knows what it was
  expect(turned(c, site("a", "red"), site("b"))).toEqual([]);
  expect(turned(c, site("a"), site("b", "grey"))).toEqual(["a: red to green, a has turned", "b: green to grey, b has turned"]);
  expect(turned(c, { tenant: "acme", name: "b" })).toEqual([]); // something else of it changed
  expect(turned(c, site("b", "grey"))).toEqual([]);
  c.learn(map("ox", "a", "z"));
  expect(turned(c, site("a", "orange"), site("z", "red"))).toEqual(["z: grey to red, z has turned"]);
  expect(c.apply({ type: "removed", asOf: null, sites: [{ tenant: "acme", name: "z" }] }, 1000, () => "")).toEqual([]);
  expect(turned(c, site("z"))).toEqual([]);
});

it("merges virtual sites by tenant, namespace and name", () => {
  const v = (name: string, sites: number) => ({ tenant: "acme", namespace: "shared", name, sites }) as VirtualSite;
  const merged = mergeVirtualSites(new Map([["acme/shared/a", v("a", 1)]]), [v("a", 2), v("b", 3)]);
  expect([...merged.values()].map((x) => x.sites)).toEqual([2, 3]);
});
