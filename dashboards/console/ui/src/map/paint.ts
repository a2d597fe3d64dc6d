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

/** Kinds of a number, and which of them a value is; what is not known is the last. Percent go from 0 to 100, all else from the least to the most there is. */
export function ofNumber(of: string, unit: string, values: readonly (number | null)[], percent: boolean): { paint: Paint; kind: (v: number | null) => number } {
  const known = values.filter((v) => v !== null);
  const least = percent || known.length === 0 ? 0 : Math.min(...known);
  const range = percent || known.length === 0 ? 100 : Math.max(...known) - least;
  const single = !percent && range < STEPS && known.every(Number.isInteger); // a step for each
  const width = single ? 1 : (range || 1) / STEPS;
  const round = (v: number) => Number(v.toPrecision(3));
  const label = (i: number) => (single ? `${least + i}` : `${round(least + i * width)}–${round(least + (i + 1) * width)}`);
  const kinds = Array.from({ length: STEPS }, (_, i) => ({ label: label(i) + unit, colour: `var(--step-${i + 1})` }));
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
