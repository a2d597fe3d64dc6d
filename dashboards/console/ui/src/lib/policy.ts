import type { HealthPolicySpec, PolicySpecSignal } from "../api/types";

// What the page of a health policy computes: its selection in words, edits of thresholds,
// and the command that would make them.

export const FIELDS = ["good", "bad", "weight"] as const;
export type Field = (typeof FIELDS)[number];

/** New values by signal and field, as they were typed. */
export type Edits = Readonly<Record<string, Readonly<Partial<Record<Field, string>>>>>;

const SUFFIX: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** A quantity of Kubernetes, such as 95, 0.5 or 64Mi; NaN for anything else. */
export function quantity(text: string | undefined): number {
  const m = /^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?$/.exec(text ?? "");
  return m ? Number(m[1]) * (m[2] ? 10 ** Number(m[2]) : SUFFIX[m[3] ?? ""]!) : NaN;
}

const written = (s: PolicySpecSignal, f: Field): string => s[f] ?? (f === "weight" ? "1" : "");

/** What is wrong with a signal's edits, or "". */
export function faultOf(s: PolicySpecSignal, edit: Edits[string] = {}): string {
  const value = (f: Field) => quantity(edit[f] ?? written(s, f));
  const wrong = FIELDS.find((f) => Number.isNaN(value(f)));
  if (wrong) return `${wrong}: want a number such as 95, 0.5 or 64Mi`;
  if (value("good") === value("bad")) return "good and bad must differ";
  return value("weight") < 0 ? "weight: want 0 or more" : "";
}

export interface Change {
  index: number;
  signal: string;
  field: Field;
  from: string;
  to: string;
}

/** The edits that change anything, in the policy's order. */
export function changesOf(spec: HealthPolicySpec, edits: Edits): Change[] {
  return spec.signals.flatMap((s, index) =>
    FIELDS.flatMap((field) => {
      const [from, to] = [written(s, field), edits[s.name]?.[field]];
      return to === undefined || to === from || quantity(to) === quantity(from) ? [] : [{ index, signal: s.name, field, from, to }];
    }),
  );
}

/** The policy with the changes in it. */
export function changed(spec: HealthPolicySpec, changes: readonly Change[]): HealthPolicySpec {
  const signals = spec.signals.map((s, index) => ({ ...s, ...Object.fromEntries(changes.filter((c) => c.index === index).map((c) => [c.field, c.to])) }));
  return { ...spec, signals };
}

/** The command that makes the changes, unless the policy's signals were moved meanwhile. */
export function patchCommand(tenant: string, name: string, changes: readonly Change[]): string {
  const at = (c: Change, what: string) => `/spec/signals/${c.index}/${what}`;
  const tests = changes.filter((c, i) => changes.findIndex((o) => o.index === c.index) === i).map((c) => ({ op: "test", path: at(c, "name"), value: c.signal }));
  const sets = changes.map((c) => ({ op: "add", path: at(c, c.field), value: c.to }));
  return `kubectl patch healthpolicy ${name} -n ${tenant}-system --type=json -p '${JSON.stringify([...tests, ...sets])}'`;
}

/** Who is selected, in words. */
export function selection(selector: HealthPolicySpec["siteSelector"]): string {
  const operator: Record<string, string> = { In: "in", NotIn: "not in" };
  const terms = [
    ...Object.entries(selector?.matchLabels ?? {}).map(([k, v]) => `${k}=${v}`),
    ...(selector?.matchExpressions ?? []).map((e) => (e.operator === "Exists" ? `has ${e.key}` : e.operator === "DoesNotExist" ? `has no ${e.key}` : `${e.key} ${operator[e.operator] ?? e.operator} (${(e.values ?? []).join(", ")})`)),
  ];
  return terms.length === 0 ? "all sites of the tenant" : `sites with ${terms.join(", ")}`;
}

/** The page of a policy; tenant is "" for the shipped one. */
export const policyPath = (p: { tenant: string; name: string }): string => (p.tenant ? `/policies/${encodeURIComponent(p.name)}?tenant=${encodeURIComponent(p.tenant)}` : "/policies/shipped");

/** The sites that a policy is in force at, in the inventory. */
export const sitesOfPolicy = (p: { tenant: string; name: string }): string =>
  `/sites?q=${encodeURIComponent(p.tenant ? `tenant=${p.tenant} policy=${p.name}` : 'policy=""')}`;
