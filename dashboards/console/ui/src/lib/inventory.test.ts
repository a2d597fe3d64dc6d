import { describe, expect, test } from "vitest";
import type { SiteField, SiteFields } from "../api/types";
import { both, complete, formatView, hasColour, hasTerm, nextSort, parseLabels, parseView, patterns, sortOf, toggleColour, toggleTerm, viewOf } from "./inventory";

const field = (name: string, kind: SiteField["kind"], more: Partial<SiteField> = {}): SiteField => ({ name, aliases: [], kind, values: [], keyed: false, grouped: true, doc: `what ${name} is`, example: `${name}=x`, ...more });
const known: SiteFields = {
  fields: [field("name", "text"), field("colour", "choice", { aliases: ["color"], values: ["green", "red"] }), field("score", "number"), field("maintenance", "flag"), field("label", "text", { keyed: true }), field("version", "version", { keyed: true })],
  labels: [
    { key: "tier", values: ["gold", "two words"], more: 0 },
    { key: "name", values: ["x"], more: 0 },
  ],
  versions: [
    { key: "agent", values: ["1.4"], more: 0 },
    { key: "os", values: ["24.04"], more: 2 },
  ],
  measured: ["disk-used", "packet-loss"],
};

const offered = (q: string, caret = q.length) => complete(q, caret, known)?.options.map((o) => o.text) ?? [];

describe("completion", () => {
  test("fields, labels and versions by what was typed", () => {
    expect(offered("na")).toEqual(["name", "label.name"]);
    expect(offered("score<60 ti")).toEqual(["tier"]);
    expect(offered("ver")).toEqual(["version.agent", "version.os"]);
    expect(offered("color")).toEqual(["colour"]);
    expect(offered("measured.p")).toEqual(["measured.packet-loss"]);
    expect(offered("score<60 ")).toEqual([]);
    expect(offered('"na')).toEqual([]);
  });
  test("values behind an operator and in a list", () => {
    expect(offered("colour=")).toEqual(["green", "red"]);
    expect(offered("color!=r")).toEqual(["red"]);
    expect(offered("colour in (green, ")).toEqual(["green", "red"]);
    expect(offered("tier=")).toEqual(["gold", '"two words"']);
    expect(offered("label.tier=g")).toEqual(["gold"]);
    expect(offered("version=")).toEqual(["1.4"]);
    expect(offered("version.os=2")).toEqual(["24.04"]);
    expect(offered("maintenance=t")).toEqual(["true"]);
    expect(offered("score=")).toEqual([]);
  });
  test("replaces the whole word that the caret is in", () => {
    expect(complete("ti=gold", 2, known)).toMatchObject({ from: 0, to: 2 });
    expect(complete("x scre<5", 4, known)).toMatchObject({ from: 2, to: 6 });
  });
});

test("a view survives its address", () => {
  const v = { q: 'kind=store "a b"', sort: "-alerts,score", columns: ["name", "label.tier"], group: "colour", open: "", tenant: "acme" };
  expect(parseView(formatView(v))).toEqual(v);
  expect(formatView(parseView(""))).toBe("");
  expect(parseView("columns=score").columns).toEqual(["name", "score"]);
});

test("headings go round", () => {
  expect([nextSort("", "score"), nextSort("score", "score"), nextSort("-score", "score")]).toEqual(["score", "-score", ""]);
  expect([nextSort("", "alerts"), nextSort("-alerts", "alerts"), nextSort("alerts", "alerts")]).toEqual(["-alerts", "alerts", ""]);
  expect(nextSort("", "name")).toBe("-name");
  expect([sortOf("", "name"), sortOf("-score,name", "score"), sortOf("-score,name", "name")]).toEqual(["ascending", "descending", "none"]);
});

test("terms are added without changing what the query means", () => {
  expect(both("a OR b", "c=d")).toBe("(a OR b) c=d");
  expect(both("", "c=d")).toBe("c=d");
  expect(toggleColour("tier=gold", "red")).toBe("tier=gold colour=red");
  expect(toggleColour("tier=gold colour=red", "red")).toBe("tier=gold");
  expect(toggleColour("tier=gold colour=red", "orange")).toBe("tier=gold colour in (red, orange)");
  expect(toggleColour("colour in (red, orange) tier=gold", "red")).toBe("tier=gold colour=orange");
  expect(hasColour("colour in (red, orange)", "orange")).toBe(true);
  expect(hasColour("mycolour=red", "red")).toBe(false);
  // Where a colour is one of several that may hold, or must not, it is not the query's own.
  expect(toggleColour("kind=store or colour=red", "green")).toBe("(kind=store or colour=red) colour=green");
  expect(toggleColour("(kind=store or colour=red) colour=green", "red")).toBe("(kind=store or colour=red) colour in (green, red)");
  expect(toggleColour("(kind=store or colour=red) colour=green", "green")).toBe("(kind=store or colour=red)");
  expect(hasColour("kind=store or colour=red", "red")).toBe(false);
  expect(toggleColour("not colour=red", "red")).toBe("not colour=red colour=red");
  expect(toggleColour('"trick or treat" colour=red', "orange")).toBe('"trick or treat" colour in (red, orange)');
  expect(toggleTerm("a=1", "maintenance=true")).toBe("a=1 maintenance=true");
  expect(hasTerm(toggleTerm("maintenance=true a=1", "maintenance=true"), "maintenance=true")).toBe(false);
});

test("names fit into matchers", () => {
  const names = Array.from({ length: 100 }, (_, i) => `site-${i}`);
  const all = patterns(names, 60);
  expect(all.every((p) => p.length <= 60)).toBe(true);
  expect(all.join("|").split("|")).toEqual(names);
});

test("labels as the command line takes them", () => {
  expect(parseLabels("tier=gold, old-  empty=")).toEqual({ labels: { tier: "gold", old: null, empty: "" }, fault: "" });
  expect(parseLabels("tier").fault).toContain("tier: want KEY=VALUE");
  expect(parseLabels(" ").fault).not.toBe("");
});

test("a saved view is one of the page's, in the tenant that is chosen", () => {
  const v = { name: "Flagships", tenant: "acme", shared: true, query: "tier=gold", sort: "-score", columns: ["score"], group: "" };
  expect(formatView(viewOf(v, "globex"))).toBe("q=tier%3Dgold&sort=-score&columns=name%2Cscore&tenant=globex");
  expect(formatView(viewOf({ ...v, columns: [], sort: "" }, ""))).toBe("q=tier%3Dgold");
});
