import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, it } from "vitest";

const files = new Set(readdirSync("src", { recursive: true, encoding: "utf8" }).filter((f) => /\.tsx?$/.test(f) && !f.endsWith(".test.ts")));

/** The files of src that a file imports, also those of which it wants a type alone. */
function importsOf(file: string): string[] {
  const named = [...readFileSync(join("src", file), "utf8").matchAll(/^(?:import|export)\b[^;]*? from "(\.[^"]+)"/gm)].map((m) => normalize(join(dirname(file), m[1]!)));
  return named.flatMap((n) => [`${n}.ts`, `${n}.tsx`]).filter((n) => files.has(n));
}

const imports = new Map([...files].map((f) => [f, importsOf(f)]));

/** A way from a file back to it; none: there is no circle. */
function circleOf(file: string): string[] {
  const from = new Map<string, string>();
  for (const left = [file]; left.length > 0; ) {
    const at = left.pop()!;
    for (const next of imports.get(at)!) {
      if (next === file) {
        const way = [file];
        for (let f: string | undefined = at; f !== undefined && f !== file; f = from.get(f)) way.unshift(f);
        return [file, ...way];
      }
      if (!from.has(next)) left.push((from.set(next, at), next));
    }
  }
  return [];
}

it("no file imports itself by way of others", () => {
  expect(files.size).toBeGreaterThan(100);
  expect(imports.get("lib/links.ts")).toContain("lib/history.ts");
  expect([...files].map(circleOf).filter((way) => way.length > 0)).toEqual([]);
});
