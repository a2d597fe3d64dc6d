import { describe, expect, it } from "vitest";
import type { Matrix, Site, SiteChange } from "../api/types";
import { learnSkew, serverNow, withParams } from "../api/client";
import { formatScore, formatValue, plural } from "./format";
import { alignedWindow, linesOf, promString, RANGES, summarize } from "./history";
import { checkLabelName, checkLabelValue, discovered, ownLabels, parseDegrees, parsePair } from "./labels";
import { compareWorst, formatUnhealthy, hasPlace, headline, sitePath, virtualSitePath } from "./site";
import { formatDuration, formatRelative, parseTime } from "./time";
import { loginFault, tokenOfHash } from "./token";

const site = (o: Partial<Site>): Site => ({
  name: "paris-07", tenant: "acme", region: "eu-west", virtualSites: ["shared/all-eu"], phase: "Online", lastSeen: null, score: 90, colour: "green", since: null,
  dimensions: {} as Site["dimensions"], reasons: [], place: { latitude: 48.8, longitude: 2.3, address: "Rue de Rivoli" }, maintenance: null, ...o,
});

describe("the way back from the identity provider", () => {
  it("has words for every reason and shows nobody else's", () => {
    expect(loginFault("")).toBe("");
    expect(loginFault("#token=x")).toBe("");
    expect(loginFault("#login=denied")).toContain("did not let you in");
    expect(loginFault("#login=<b>pay here</b>")).toBe(loginFault("#login=failed"));
  });
});

describe("site", () => {
  it("sorts the worst first, unknown before healthy", () => {
    const list = [
      site({ name: "d", colour: "green", score: 76 }), site({ name: "c", colour: "grey", score: null }), site({ name: "b", colour: "orange", score: 50 }),
      site({ name: "a2", colour: "red", score: 20 }), site({ name: "a1", colour: "red", score: 20 }), site({ name: "a3", colour: "red", score: 5 }),
    ];
    expect(list.sort(compareWorst).map((s) => s.name)).toEqual(["a3", "a1", "a2", "b", "c", "d"]);
  });

  it("always says why in one line", () => {
    const turned = (s: Partial<SiteChange>) => headline({ tenant: "acme", name: "paris-07", phase: "Online", colour: "green", ...s });
    expect(turned({ text: "disk full" })).toBe("disk full");
    expect(turned({ phase: "Approved", colour: "grey" })).toBe("approved, has not connected yet");
    expect(turned({ colour: "grey" })).toBe("not enough is known for a score");
    expect(turned({})).toBe("no points lost");
  });

  it("draws only positions on earth", () => {
    expect(hasPlace(site({}))).toBe(true);
    expect(hasPlace(site({ place: null }))).toBe(false);
    expect(hasPlace(site({ place: { latitude: 91, longitude: 0 } }))).toBe(false);
    expect(hasPlace(site({ place: { latitude: NaN, longitude: 0 } }))).toBe(false);
  });

  it("makes addresses, and a dash of nothing", () => {
    expect(sitePath({ tenant: "acme", name: "paris-07" })).toBe("/sites/paris-07?tenant=acme");
    expect(virtualSitePath({ tenant: "acme", namespace: "shared", name: "all" })).toBe("/virtual-sites/shared/all?tenant=acme");
    const vs = { name: "x", namespace: "shared", tenant: "acme", sites: 1, mean: null, p10: null, worst: null, maintenance: 1, percentUnhealthy: 0 };
    expect(formatUnhealthy({ ...vs, counts: { green: 0, orange: 0, red: 0, grey: 0 } })).toBe("–");
    expect(formatUnhealthy({ ...vs, counts: { green: 1, orange: 0, red: 0, grey: 0 } })).toBe("0%");
  });
});

describe("figures", () => {
  it("never rounds a score into another colour", () => {
    expect([39.99, 75, 100, 0, null, undefined].map(formatScore)).toEqual(["39", "75", "100", "0", "–", "–"]);
  });

  it("writes values with their units", () => {
    expect(formatValue(0.0123, "ratio")).toBe("1.23%");
    expect(formatValue(93.26, "percent")).toBe("93.3%");
    expect(formatValue(210, "seconds")).toBe("3.5 min");
    expect(formatValue(0.0004, "seconds")).toBe("0.4 ms");
    expect(formatValue(1, "days")).toBe("1 day");
    expect(formatValue(0.0103, "days")).toBe("14.8 min");
    expect(formatValue(0, "days")).toBe("0 days");
    expect(formatValue(64 * 1024 * 1024, "bytes")).toBe("64 MiB");
    expect(formatValue(12.5, "per second")).toBe("12.5 per second");
    expect(formatValue(Infinity, "days")).toBe("∞ days");
    expect(formatValue(null, "days")).toBe("–");
    expect(formatValue(12345)).toBe("12,345");
    expect(plural(1, "site")).toBe("1 site");
    expect(plural(1200, "site")).toBe("1,200 sites");
  });

  it("tells times apart", () => {
    const now = Date.parse("2026-01-31T12:00:00Z");
    expect(formatRelative(now - 1500, now)).toBe("just now");
    expect(formatRelative(now - 42_000, now)).toBe("42s ago");
    expect(formatRelative(now - 59 * 60_000, now)).toBe("59m ago");
    expect(formatRelative(now + 3 * 86400_000, now)).toBe("in 3d");
    expect(formatDuration(90)).toBe("90 s");
    expect(formatDuration(7300)).toBe("2 h");
    expect(parseTime("0001-01-01T00:00:00Z")).toBeUndefined();
    expect(parseTime("soon")).toBeUndefined();
    expect(parseTime(null)).toBeUndefined();
  });

  it("trusts the server's clock when the laptop's is far off", () => {
    learnSkew(new Date(Date.now() + 3600_000).toUTCString(), Date.now());
    expect(serverNow() - Date.now()).toBeGreaterThan(3590_000);
    learnSkew(new Date(Date.now() + 900).toUTCString(), Date.now());
    expect(Math.abs(serverNow() - Date.now())).toBeLessThan(50);
    learnSkew("nonsense", Date.now());
    expect(Math.abs(serverNow() - Date.now())).toBeLessThan(50);
  });
});

describe("history", () => {
  const matrix = (result: { metric: Record<string, string>; values: [number, string][] }[]): Matrix => ({ status: "success", data: { resultType: "matrix", result } });

  it("asks for the same points within a step", () => {
    const r = RANGES[0]!;
    expect(alignedWindow(1_700_000_012, r)).toEqual(alignedWindow(1_700_000_029, r));
    const { start, end } = alignedWindow(1_700_000_012, r);
    expect(end - start).toBe(3600);
    expect(end % r.step).toBe(0);
    for (const x of RANGES) expect(x.seconds % x.step).toBe(0);
  });

  it("ends now, even where a step takes hours", () => {
    for (const x of RANGES) expect(1_700_000_012 - alignedWindow(1_700_000_012, x).end).toBeLessThanOrEqual(60);
  });

  it("leaves gaps as gaps and joins series of one label", () => {
    const m = matrix([
      { metric: { dimension: "security", region: "a" }, values: [[100, "90"], [130, "NaN"]] },
      { metric: { dimension: "security", region: "b" }, values: [[160, "70"], [190, "60.5"]] },
      { metric: { dimension: "reliability" }, values: [[100, "1"]] },
    ]);
    const lines = linesOf(m, "dimension", 100, 190, 30);
    expect(lines.get("security")).toEqual([[100, 90], [130, null], [160, 70], [190, 60.5]]);
    expect(lines.get("security")).toEqual([[100, 90], [130, null], [160, 70], [190, 60.5]]);
    expect(summarize(lines.get("security")!)).toEqual({ first: 90, last: 60.5, min: 60.5, minAt: 190, max: 90, gaps: true });
    expect(summarize([[1, null]])).toBeUndefined();
    expect(linesOf(matrix([]), "", 0, 30, 30).size).toBe(0);
  });

  it("quotes names for PromQL", () => {
    expect(promString('a"b\\c')).toBe('"a\\"b\\\\c"');
  });
});

describe("labels", () => {
  const all = { region: "eu", "example.com/tier": "gold", "muster.dev/key": "6a75", "muster.dev/tenant": "acme", "muster.dev/system-arch": "arm64" };

  it("tells what was discovered, what people set, and what Muster needs for itself", () => {
    expect(discovered(all)).toEqual({ arch: "arm64" });
    expect(ownLabels(all)).toEqual({ region: "eu", "example.com/tier": "gold" });
  });
});

describe("what people type", () => {
  it("checks labels as Kubernetes does", () => {
    for (const ok of ["region", "model-year", "example.com/tier", "a.b_c-D9"]) expect(checkLabelName(ok)).toBe("");
    for (const bad of ["", "-a", "a b", "muster.dev/system-os", "Example.com/x", "/x", "x".repeat(64)]) expect(checkLabelName(bad)).not.toBe("");
    for (const ok of ["", "eu-west", "2018"]) expect(checkLabelValue(ok)).toBe("");
    for (const bad of ["a b", "é", "-", "x".repeat(64)]) expect(checkLabelValue(bad)).not.toBe("");
  });

  it("reads degrees", () => {
    expect(parseDegrees(" 48,85 ", 90)).toBe(48.85);
    expect(parseDegrees("-179.999", 180)).toBe(-179.999);
    for (const bad of ["", "91", "1e1", "48.", "north", "0x10"]) expect(parseDegrees(bad, 90)).toBeNaN();
    expect(parsePair("48.8566, 2.3522")).toEqual({ latitude: "48.8566", longitude: "2.3522" });
    expect(parsePair("48.8566")).toBeUndefined();
  });

  it("takes the token of a login link", () => {
    expect(tokenOfHash("#token=abc.def-1_2")).toBe("abc.def-1_2");
    expect(tokenOfHash("#token=a%2Bb&x=1")).toBe("a+b");
    expect(tokenOfHash("#main")).toBe("");
    expect(tokenOfHash("")).toBe("");
  });

  it("builds addresses without empty parameters", () => {
    expect(withParams("/x", { a: "", b: undefined, c: 0, d: "e f" })).toBe("/x?c=0&d=e+f");
    expect(withParams("/x")).toBe("/x");
  });
});
