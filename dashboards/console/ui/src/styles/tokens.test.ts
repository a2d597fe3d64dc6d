import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { contrast, difference, parseHex, type RGB, VISIONS } from "../lib/vision";

const css = readFileSync(new URL("./tokens.css", import.meta.url), "utf8");
const themes = { light: new Map<string, RGB>(), dark: new Map<string, RGB>() };
for (const m of css.matchAll(/--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)) {
  themes.light.set(m[1]!, parseHex(m[2]!));
  themes.dark.set(m[1]!, parseHex(m[3]!));
}
const STATUS = ["green", "orange", "red", "grey"] as const;

describe.each(Object.entries(themes))("%s theme", (_name, theme) => {
  const c = (name: string): RGB => {
    const v = theme.get(name);
    if (!v) throw new Error(`--${name} is not in tokens.css`);
    return v;
  };

  it.each([
    ["text", ["bg", "surface", "surface-2", "hover", "accent-soft", "danger-soft", "warn-soft"]],
    ["muted", ["bg", "surface", "surface-2", "hover", "accent-soft"]],
    ["accent", ["bg", "surface", "surface-2", "hover"]],
    ["danger", ["bg", "surface"]],
    ["on-accent", ["accent"]],
    ["country-name", ["land"]],
  ])("%s is readable (AA) on every background", (fg, backgrounds) => {
    for (const b of backgrounds) expect(contrast(c(fg), c(b)), `${fg} on ${b}`).toBeGreaterThanOrEqual(4.5);
  });

  it("shapes and borders of fields stand out (AA for graphics)", () => {
    for (const s of STATUS) for (const b of ["bg", "surface", "land", "sea"]) expect(contrast(c(s), c(b)), `${s} on ${b}`).toBeGreaterThanOrEqual(3);
    for (const b of ["bg", "surface"]) expect(contrast(c("border-strong"), c(b))).toBeGreaterThanOrEqual(3);
    for (let i = 1; i <= 8; i++) for (const b of ["bg", "surface"]) expect(contrast(c(`line-${i}`), c(b)), `line-${i} on ${b}`).toBeGreaterThanOrEqual(3);
  });

  it.each(VISIONS)("colours differ with vision %s", (vision) => {
    for (const [i, a] of STATUS.entries()) {
      for (const b of STATUS.slice(i + 1)) expect(difference(c(a), c(b), vision), `${a} and ${b}`).toBeGreaterThanOrEqual(8);
    }
  });
});
