import type { Colour, Counts, Dimension } from "../api/types";

/** Worst first; unknown stands between bad and good, because it is neither. */
export const COLOURS: readonly Colour[] = ["red", "orange", "grey", "green"];

export const DIMENSIONS: readonly Dimension[] = ["connectivity", "reliability", "security", "performance"];

export const colourName: Record<Colour, string> = {
  red: "Failing",
  orange: "Degraded",
  grey: "Unknown",
  green: "Healthy",
};

export const colourMeaning: Record<Colour, string> = {
  red: "score below 40, or a critical signal failed",
  orange: "score from 40 to 75",
  grey: "too little is known for a score",
  green: "score above 75",
};

export const dimensionName: Record<Dimension, string> = {
  connectivity: "Connectivity",
  reliability: "Reliability",
  security: "Security",
  performance: "Performance",
};

export function colourRank(c: Colour): number {
  const i = COLOURS.indexOf(c);
  return i < 0 ? COLOURS.indexOf("grey") : i;
}

export function worstColour(counts: Counts): Colour {
  return COLOURS.find((c) => counts[c] > 0) ?? "grey";
}

/** The colour of a bare score; a site's own colour also knows caps and hysteresis. */
export function colourOfScore(score: number | null): Colour {
  if (score === null) return "grey";
  return score > 75 ? "green" : score >= 40 ? "orange" : "red";
}
