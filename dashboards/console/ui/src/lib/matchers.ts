// Matchers of silences, as Alertmanager means them: a label that is not there is
// empty, and a regular expression must fit the whole value.

import type { Alert, Matcher } from "../api/types";

export const OPERATORS = ["=", "!=", "=~", "!~"] as const;
export type Operator = (typeof OPERATORS)[number];

export const operatorOf = (m: Pick<Matcher, "isRegex" | "isEqual">): Operator => (m.isRegex ? (m.isEqual ? "=~" : "!~") : m.isEqual ? "=" : "!=");

export const matcherOf = (name: string, op: Operator, value: string): Matcher => ({ name, value, isRegex: op.endsWith("~"), isEqual: op.startsWith("=") });

/** As Alertmanager writes it. */
export const formatMatcher = (m: Matcher): string => `${m.name}${operatorOf(m)}${JSON.stringify(m.value)}`;

/** RE2 and JavaScript agree on what people write here; where not, undefined. */
function regexp(value: string): RegExp | undefined {
  try {
    return new RegExp(`^(?:${value})$`, "su");
  } catch {
    try {
      return new RegExp(`^(?:${value})$`, "s"); // needless escapes
    } catch {
      return undefined;
    }
  }
}

/** A test for many values; undefined when the expression can't be read. */
function tester(m: Matcher): ((labels: Readonly<Record<string, string>>) => boolean) | undefined {
  if (!m.isRegex) return (l) => ((l[m.name] ?? "") === m.value) === m.isEqual;
  const re = regexp(m.value);
  return re && ((l) => re.test(l[m.name] ?? "") === m.isEqual);
}

/** The alerts that all matchers fit; undefined when one can't be tried here. */
export function matching(alerts: readonly Alert[], matchers: readonly Matcher[]): Alert[] | undefined {
  const tests = matchers.map(tester);
  if (tests.some((t) => !t)) return undefined;
  return alerts.filter((a) => tests.every((t) => t!(a.labels)));
}

const LABEL = /^[^\s{}=~!,"]{1,256}$/;

/** What is wrong with a matcher, or "". */
export function checkMatcher(m: Matcher): string {
  if (!m.name) return "want a label's name";
  if (m.name === "tenant") return "the tenant is set by itself";
  if (!LABEL.test(m.name)) return "not a label's name";
  if (m.isRegex && !regexp(m.value)) return "not a regular expression";
  return "";
}

/** What is wrong with all of them together, or "". */
export function checkMatchers(ms: readonly Matcher[]): string {
  if (ms.length === 0) return "Want at least one matcher.";
  if (ms.length > 20) return "Want at most 20 matchers.";
  // Alertmanager refuses a silence of which every matcher fits a label that is not there.
  if (ms.every((m) => checkMatcher(m) === "" && tester(m)?.({}))) return "At least one matcher must want a value: this would silence every alert of the tenant.";
  return "";
}

/** Labels that Muster adds; the others say what the alert is about. */
const ADDED = new Set(["region", "virtual_sites", "severity"]);

/** Labels that say what alerts are about: without those that Muster adds, but with all of own, such as what a group is grouped by. */
export const tellingLabels = (labels: Readonly<Record<string, string>>, own: Readonly<Record<string, string>> = {}): Record<string, string> => ({
  ...own, // first, should there be more than a silence takes
  ...Object.fromEntries(Object.entries(labels).filter(([k]) => !ADDED.has(k))),
});

/** Matchers for what has all these labels, the rule and the site first. */
export function matchersOf(labels: Readonly<Record<string, string>>): Matcher[] {
  const rank = (k: string) => (k === "alertname" ? 0 : k === "site" ? 1 : 2);
  return Object.entries(labels)
    .filter(([k]) => k !== "tenant")
    .sort(([a], [b]) => rank(a) - rank(b))
    .slice(0, 20)
    .map(([k, v]) => matcherOf(k, "=", v));
}
