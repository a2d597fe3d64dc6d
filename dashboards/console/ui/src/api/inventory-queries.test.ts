import { expect, test } from "vitest";
import { once } from "./inventory-queries";

test("a site that moved while pages were turned is listed once", () => {
  const page = (...names: string[]) => ({ sites: names.map((name) => ({ tenant: "acme", name })) });
  const same = { pages: [page("a", "b"), page("c")], pageParams: ["", "x"] };
  expect(once(same)).toBe(same);
  const { pages } = once({ pages: [page("a", "b"), { sites: [{ tenant: "zeta", name: "a" }, ...page("b", "c").sites] }] });
  expect(pages.map((p) => p.sites.map((s) => `${s.tenant}/${s.name}`))).toEqual([["acme/a", "acme/b"], ["zeta/a", "acme/c"]]);
});
