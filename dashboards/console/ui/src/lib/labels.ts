// Checks of what a person types before a site is approved. The server checks again;
// these only say it sooner.

const NAME = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$/;
const PREFIX = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;
const MUSTER = "muster.dev/";
const DISCOVERED = "muster.dev/system-";

type LabelSet = Readonly<Record<string, string>>;

/**
 * What the machine said of itself, without the prefix. Muster's other labels, such as
 * its key and tenant, are for selectors; the page shows those facts elsewhere.
 */
export const discovered = (labels: LabelSet): Record<string, string> =>
  Object.fromEntries(Object.entries(labels).flatMap(([k, v]) => (k.startsWith(DISCOVERED) ? [[k.slice(DISCOVERED.length), v]] : [])));

/** Those that people set. */
export const ownLabels = (labels: LabelSet): Record<string, string> => Object.fromEntries(Object.entries(labels).filter(([k]) => !k.startsWith(MUSTER)));

/** What is wrong with a label's name, or "". */
export function checkLabelName(k: string): string {
  const i = k.indexOf("/");
  const name = i < 0 ? k : k.slice(i + 1);
  if (k.startsWith(MUSTER)) return "labels under muster.dev/ are set by Muster";
  if (i >= 0 && !PREFIX.test(k.slice(0, i))) return "the part before / must be a DNS name";
  if (!NAME.test(name)) return "want letters, digits, - _ . and at most 63 of them";
  return "";
}

/** What is wrong with a label's value, or "". */
export function checkLabelValue(v: string): string {
  return v === "" || NAME.test(v) ? "" : "want letters, digits, - _ . and at most 63 of them";
}

/** Degrees as people type them ("48.85", "48,85"); NaN for what is none. */
export function parseDegrees(s: string, limit: number): number {
  const t = s.trim().replace(",", ".");
  if (!/^[-+]?\d{1,3}(\.\d+)?$/.test(t)) return NaN;
  const v = Number(t);
  return Math.abs(v) <= limit ? v : NaN;
}

/** A pair as maps copy it: "48.8566, 2.3522". */
export function parsePair(s: string): { latitude: string; longitude: string } | undefined {
  const m = /^\s*([-+]?\d{1,2}(?:\.\d+)?)\s*[,;\s]\s*([-+]?\d{1,3}(?:\.\d+)?)\s*$/.exec(s);
  return m ? { latitude: m[1]!, longitude: m[2]! } : undefined;
}
