import { describe, expect, it } from "vitest";
import type { VirtualHost } from "../api/types";
import { addressOf, consumersOf, hostColour, hostPath, linkQueries, partsOf, siteHostQueries, siteQueries, sitesQuery, triesBy, triesColour, triesText, valuesBy } from "./hosts";

const policy = (name: string, ...virtualSites: string[]) => ({ name, virtualSites, sites: 3, fault: "" });
const db: VirtualHost = {
  tenant: "acme", namespace: "shop", name: "db", host: "db-global", port: 5432, service: "db", servicePort: 5432, protocol: "TCP", routes: [], virtualSite: "shared/datacenters", providers: 2, providersOnline: 1, consumers: 5, createdAt: "2026-01-30T00:00:00Z",
  ready: true, reason: "Reachable", message: "", policies: [policy("a", "shared/stores", "shop/kiosks"), policy("b", "shared/stores")],
};

describe("virtual hosts", () => {
  it("are named and reached", () => {
    expect(hostPath(db)).toBe("/virtual-hosts/shop/db?tenant=acme");
    expect(addressOf(db)).toBe("db-global:5432");
    expect(addressOf({ ...db, port: 0 })).toBe("db-global");
    expect(consumersOf(db)).toEqual(["shared/stores", "shop/kiosks"]);
  });
  it("say what a site has to do with them", () => {
    expect(partsOf(db, ["shared/datacenters", "shared/x"])).toEqual({ provides: true, consumes: false });
    expect(partsOf(db, ["shop/kiosks"])).toEqual({ provides: false, consumes: true });
    expect(sitesQuery(db)).toBe('virtualSite in ("shared/datacenters", "shared/stores", "shop/kiosks")');
    expect(sitesQuery(db, "provides")).toBe('virtualSite in ("shared/datacenters")');
  });
  it("are asked about by site", () => {
    expect(siteQueries("shop/db", ["paris-1", "x.y"]).open).toBe('sum by (site, direction) (muster_agent_host_connections{host="shop/db",site=~"paris-1|x\\\\.y"})');
    expect(siteQueries("shop/db", []).failed).toContain('{host="shop/db",result!="ok"}[1h]');
    expect(siteHostQueries("paris").open).toBe('sum by (host) (muster_agent_host_connections{site="paris"})');
    expect(linkQueries("").total).toBe('count(sum by (host, site, peer) (muster_agent_host_connections{direction="out"}))');
  });
  it("read answers by labels", () => {
    const v = { status: "success" as const, data: { resultType: "vector" as const, result: [{ metric: { site: "paris", direction: "out" }, value: [0, "2.5"] as [number, string] }] } };
    expect(valuesBy(v, "site", "direction")).toEqual(new Map([["paris out", 2.5]]));
    expect(valuesBy(undefined, "site").size).toBe(0);
  });
  // A host that nobody reaches was green while the slower of the two answers was on its way.
  it("say nothing of attempts until both answers are there", () => {
    const of = (n: string) => ({ status: "success" as const, data: { resultType: "vector" as const, result: [{ metric: { host: "shop/db" }, value: [0, n] as [number, string] }] } });
    expect(triesBy(of("4"), undefined, "host")("shop/db")).toBeUndefined();
    expect(triesBy(undefined, of("4"), "host")("shop/db")).toBeUndefined();
    expect(triesBy(of("4"), of("3"), "host")("shop/db")).toEqual({ tried: 4, failed: 3 });
  });
  it.each([
    [{ ready: false, reason: "NoMembers" }, undefined, "red"],
    [{ ready: false, reason: "" }, undefined, "grey"],
    [{ ready: true, reason: "" }, undefined, "grey"],
    [{ ready: true, reason: "" }, { tried: undefined, failed: undefined }, "green"],
    [{ ready: true, reason: "" }, { tried: 4, failed: 4 }, "red"],
    [{ ready: true, reason: "" }, { tried: 4, failed: 1 }, "orange"],
    [{ ready: false, reason: "NoMembers" }, { tried: 4, failed: 0 }, "red"],
  ])("a host %o, tried %o, is %s", (h, tries, colour) => expect(hostColour(h, tries)).toBe(colour));
  it.each([
    [undefined, "grey", "attempts not known yet"],
    [{ tried: undefined, failed: undefined }, "grey", "not tried in an hour"],
    [{ tried: 1, failed: 0 }, "green", "1 attempt in an hour, none failed"],
    [{ tried: 4, failed: 1 }, "orange", "1 of 4 attempts in an hour failed"],
    [{ tried: 4, failed: 4 }, "red", "4 of 4 attempts in an hour failed"],
  ])("%o are %s", (tries, colour, text) => {
    expect(triesColour(tries)).toBe(colour);
    expect(triesText(tries)).toBe(text);
  });
});
