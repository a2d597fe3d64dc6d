import { describe, expect, it } from "vitest";
import { applyEvent, changesBetween, EventBuffer, fleetOf } from "./fleet";
import type { Colour, Site } from "./types";

const site = (name: string, colour: Colour = "green", score: number | null = 90): Site => ({
  name, tenant: "acme", region: "eu", virtualSites: [], phase: "Online", lastSeen: null, score, colour, since: null, dimensions: {} as Site["dimensions"], reasons: [], place: null, maintenance: null,
});
const T = (s: number) => new Date(1_700_000_000_000 + s * 1000).toISOString();

describe("applyEvent", () => {
  const fleet = fleetOf(T(10), [site("a"), site("b")]);

  it("replaces, adds and removes whole sites", () => {
    const f = applyEvent(fleet, { type: "sites", asOf: T(25), sites: [site("b", "red", 10), site("c")] });
    expect([...f.sites.keys()]).toEqual(["acme/a", "acme/b", "acme/c"]);
    expect(f.sites.get("acme/b")?.colour).toBe("red");
    expect(f.asOf).toBe(T(25));
    expect(applyEvent(f, { type: "removed", asOf: T(40), sites: [{ tenant: "acme", name: "a" }] }).sites.has("acme/a")).toBe(false);
    expect(fleet.sites.size).toBe(2); // the old state is left as it was
  });

  it("ignores what a list has overtaken", () => {
    expect(applyEvent(fleet, { type: "sites", asOf: T(9), sites: [site("a", "red")] })).toBe(fleet);
  });

  it("is the same object when nothing changed", () => {
    expect(applyEvent(fleet, { type: "sites", asOf: T(10), sites: [] })).toBe(fleet);
    expect(applyEvent(fleet, { type: "sites", asOf: T(11), sites: [] }).sites).toBe(fleet.sites);
  });

  it("tells sites of one name in two tenants apart", () => {
    const other = { ...site("a", "red"), tenant: "globex" };
    const f = applyEvent(fleet, { type: "sites", asOf: T(11), sites: [other] });
    expect(f.sites.get("acme/a")?.colour).toBe("green");
    expect(f.sites.get("globex/a")?.colour).toBe("red");
  });
});

describe("EventBuffer", () => {
  it("merges what was said while the list was read", async () => {
    const b = new EventBuffer();
    b.add({ type: "sites", asOf: T(1), sites: [site("x")] }); // nobody reads: not kept
    const f = await b.reading(async () => {
      b.add({ type: "sites", asOf: T(5), sites: [site("a", "orange")] }); // older than the list
      b.add({ type: "sites", asOf: T(25), sites: [site("a", "red")] });
      b.add({ type: "removed", asOf: T(40), sites: [{ tenant: "acme", name: "b" }] });
      return fleetOf(T(10), [site("a"), site("b")]);
    });
    expect([...f.sites.values()].map((s) => `${s.name} ${s.colour}`)).toEqual(["a red"]);
    const again = await b.reading(async () => fleetOf(T(10), [site("a")]));
    expect(again.sites.get("acme/a")?.colour).toBe("green");
  });

  it("goes on after a list that failed", async () => {
    const b = new EventBuffer();
    await expect(b.reading(() => Promise.reject(new Error("503")))).rejects.toThrow("503");
    const f = await b.reading(async () => {
      b.add({ type: "sites", asOf: T(11), sites: [site("a", "red")] });
      return fleetOf(T(10), [site("a")]);
    });
    expect(f.sites.get("acme/a")?.colour).toBe("red");
  });
});

describe("changesBetween", () => {
  it("lists changes of colour only, not new sites", () => {
    const before = fleetOf(T(1), [site("a"), site("b"), site("c")]);
    const after = fleetOf(T(2), [site("a", "red", 20), site("b", "green", 80), site("c"), site("d", "red")]);
    expect(changesBetween(before, after, 7, () => "why").map((c) => [c.site.name, c.from, c.to, c.at, c.text])).toEqual([["a", "green", "red", 7, "why"]]);
  });
});
