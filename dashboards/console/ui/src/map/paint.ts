// By what sites are coloured on the map.

import type { Colour } from "../api/types";
import { COLOURS, colourName } from "../lib/colour";

/** One of a few kinds into which sites fall. */
export interface Kind {
  label: string;
  /** A colour of CSS. */
  colour: string;
  /** Of the four colours of health: the shape says the same. */
  health?: Colour;
}

/** Kinds in the order in which a pie shows them; a site's kind is a position in it. */
export interface Paint {
  kinds: readonly Kind[];
  /** What the figures mean, for those who can't see: "memory used". */
  of: string;
}

export const HEALTH: Paint = { of: "", kinds: COLOURS.map((c) => ({ label: colourName[c], colour: `var(--${c})`, health: c })) };

export const healthKind = (c: Colour): number => Math.max(0, COLOURS.indexOf(c));

/** From little to much: light to dark, so that the order is seen without the hue. */
const STEPS = 5;
const UNKNOWN = "var(--kind-none)";

/** Kinds of a number from 0 to 100, and which of them a value is; what is not known is the last. */
export function ofNumber(of: string, unit: string, values: readonly (number | null)[]): { paint: Paint; kind: (v: number | null) => number } {
  const known = values.filter((v) => v !== null);
  const percent = known.every((v) => v >= -1 && v <= 101);
  const least = percent ? 0 : Math.min(...known);
  const width = (percent ? 100 : Math.max(...known) - least || 1) / STEPS;
  const round = (v: number) => Number(v.toPrecision(3));
  const kinds = Array.from({ length: STEPS }, (_, i) => ({ label: `${round(least + i * width)}–${round(least + (i + 1) * width)}${unit}`, colour: `var(--step-${i + 1})` }));
  return {
    paint: { of, kinds: [...kinds, { label: "not known", colour: UNKNOWN }] },
    kind: (v) => (v === null ? STEPS : Math.max(0, Math.min(STEPS - 1, Math.floor((v - least) / width)))),
  };
}

/** Kinds of a few texts; what has another one is the last. */
export function ofTexts(of: string, texts: readonly string[]): { paint: Paint; kind: (i: number) => number } {
  const most = texts.slice(0, 8);
  return {
    paint: { of, kinds: [...most.map((t, i) => ({ label: t || "none", colour: `var(--kind-${i + 1})` })), { label: "others", colour: UNKNOWN }] },
    kind: (i) => (i < 0 || i >= most.length ? most.length : i),
  };
}
