import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { formatRelative } from "./time";

interface Case {
  what: string;
  /** Seconds since the site was heard of; null: it never was. */
  heard: number | null;
  page: string;
}

// The CLI's LAST SEEN is held to the same table (cmd/internal/cli/lastseen_test.go).
const cases = JSON.parse(readFileSync(new URL("../../../../../cmd/internal/cli/testdata/lastseen.json", import.meta.url), "utf8")) as Case[];
const now = Date.parse("2026-01-31T12:00:00Z");

it.each(cases.filter((c) => c.heard !== null))("says of a site that is $what what the CLI says", ({ heard, page }) => {
  expect(formatRelative(now - heard! * 1000, now)).toBe(page);
});

it("never says more than it is, nor a whole unit less", () => {
  const unit: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };
  for (let age = 2; age < 1e8; age = Math.ceil(age * 1.01)) {
    const [, n, of] = /^(\d+)([smhd]) ago$/.exec(formatRelative(now - age * 1000, now).replaceAll(",", ""))!;
    const least = Number(n) * unit[of!]!;
    expect(age).toBeGreaterThanOrEqual(least);
    expect(age).toBeLessThan(least + unit[of!]!);
  }
});
