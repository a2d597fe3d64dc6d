// Rollouts: names, counts, what the picture of the waves and the comparison of scores are
// made of, and how the list is filtered.

import type { Rollout, RolloutCounts, RolloutDetail, RolloutPhase, RolloutSite, RolloutStep } from "../api/types";
import type { Between } from "./between";
import type { Sample } from "./history";
import { parseTime } from "./time";

export interface RolloutRef {
  tenant: string;
  namespace: string;
  name: string;
}

const enc = encodeURIComponent;

export const rolloutRef = (r: RolloutRef): string => `${r.namespace}/${r.name}`;
export const rolloutKey = (r: RolloutRef): string => `${r.tenant}/${rolloutRef(r)}`;
/** What rolloutKey made; undefined if it is none. */
export function parseRolloutKey(key: string): RolloutRef | undefined {
  const [tenant, namespace, name] = key.split("/");
  return tenant && namespace && name ? { tenant, namespace, name } : undefined;
}

export const rolloutPath = (r: RolloutRef): string => `/rollouts/${enc(r.namespace)}/${enc(r.name)}?tenant=${enc(r.tenant)}`;

/** From what is done to what is wrong, as people read a bar. */
export const STEPS: readonly RolloutStep[] = ["passed", "ready", "updating", "waiting", "held", "offline", "rolledBack", "failed"];

export const stepName: Record<RolloutStep, string> = {
  passed: "Passed",
  ready: "Ready",
  updating: "Updating",
  waiting: "Waiting",
  held: "Held",
  offline: "Offline",
  rolledBack: "Put back",
  failed: "Failed",
};

export const stepMeaning: Record<RolloutStep, string> = {
  passed: "has the change, and its wave's gates have held",
  ready: "has the change and is ready; the gates are still being watched",
  updating: "got the change, not ready yet",
  waiting: "has what it had, until its wave's turn",
  held: "in maintenance, or outside of its window",
  offline: "skipped; caught up when it returns",
  rolledBack: "had the change, and was put back",
  failed: "the change failed here, or was not ready in time",
};

export const PHASES: readonly RolloutPhase[] = ["Progressing", "Paused", "RollingBack", "Queued", "Completed", "RolledBack", "Superseded", "Invalid"];

export const phaseName: Record<RolloutPhase, string> = {
  Queued: "Queued",
  Progressing: "Progressing",
  Paused: "Paused",
  RollingBack: "Rolling back",
  RolledBack: "Rolled back",
  Completed: "Completed",
  Superseded: "Superseded",
  Invalid: "Invalid",
};

export const hasEnded = (p: RolloutPhase): boolean => p === "Completed" || p === "RolledBack" || p === "Superseded" || p === "Invalid";

/** How many sites are at a step: what passed is among the updated. */
export function atStep(c: RolloutCounts, s: RolloutStep): number {
  return s === "ready" ? Math.max(0, c.updated - c.passed) : c[s];
}

export function stepsText(c: RolloutCounts): string {
  return STEPS.filter((s) => atStep(c, s) > 0).map((s) => `${atStep(c, s)} ${stepName[s].toLowerCase()}`).join(", ") || "no sites";
}

/** What moves, in a few words: the first object, and how many more there are. */
export function targetOf(r: Pick<Rollout, "changes">): string {
  const first = r.changes[0];
  if (!first) return "";
  return `${first.kind} ${first.name}${r.changes.length > 1 ? ` and ${r.changes.length - 1} more` : ""}`;
}

/** The kind of a change's object as paths name it: KIND.GROUP, KIND alone of the core group. */
export function kindOfChange(c: { apiVersion: string; kind: string }): string {
  const i = c.apiVersion.indexOf("/");
  return i < 0 ? c.kind : `${c.kind}.${c.apiVersion.slice(0, i)}`;
}

/** A cell of a wave's picture: one site, or several of which it shows the worst. */
export interface Cell {
  step: RolloutStep;
  sites: readonly string[];
}

/** What of several sites in one cell is shown: what somebody would want to know of first. */
const LOUD: readonly RolloutStep[] = ["failed", "rolledBack", "updating", "held", "offline", "ready", "waiting", "passed"];

/** As many cells a wave as can be told apart. */
export const MAX_CELLS = 400;

/**
 * The cells of a wave. Few sites keep their places, so that one sees each change; many are
 * sorted by step and put together, and a cell that is of several shows the loudest.
 */
export function cellsOf(sites: readonly RolloutSite[], most = MAX_CELLS): Cell[] {
  if (sites.length <= most) return sites.map((s) => ({ step: s.step, sites: [s.site] }));
  const size = Math.ceil(sites.length / most);
  const sorted = [...sites].sort((a, b) => STEPS.indexOf(a.step) - STEPS.indexOf(b.step));
  const out: Cell[] = [];
  for (let i = 0; i < sorted.length; i += size) {
    const group = sorted.slice(i, i + size);
    out.push({ step: LOUD.find((l) => group.some((s) => s.step === l))!, sites: group.map((s) => s.site) });
  }
  return out;
}

/** Sites by wave, from 1; those of none yet are under 0. */
export function byWave(sites: readonly RolloutSite[]): Map<number, RolloutSite[]> {
  const out = new Map<number, RolloutSite[]>();
  for (const s of sites) {
    const l = out.get(s.wave);
    if (l) l.push(s);
    else out.set(s.wave, [s]);
  }
  return out;
}

const TOUCHED = new Set<RolloutStep>(["updating", "ready", "passed", "rolledBack", "failed"]);

export interface Groups {
  changed: string[];
  unchanged: string[];
  /** Seconds since 1970 from which the unchanged ones have the change too. */
  until?: number;
  /** What the unchanged ones are. */
  unchangedName: string;
}

/**
 * Who is compared: the sites that have or had the change with those that never had it. Once all
 * have it, those of the last wave stand for the unchanged ones, until their wave began.
 */
export function groupsOf(r: Pick<RolloutDetail, "waves">, sites: readonly RolloutSite[]): Groups {
  const changed = sites.filter((s) => TOUCHED.has(s.step));
  const others = sites.filter((s) => !TOUCHED.has(s.step) && s.step !== "offline");
  if (changed.length === 0) return { changed: [], unchanged: others.map((s) => s.site), unchangedName: "all, none has it yet" };
  if (others.length > 0) return { changed: changed.map((s) => s.site), unchanged: others.map((s) => s.site), unchangedName: "unchanged" };
  const last = Math.max(...changed.map((s) => s.wave));
  const until = parseTime(r.waves.find((w) => w.number === last)?.startedAt);
  if (last <= 1 || until === undefined) return { changed: changed.map((s) => s.site), unchanged: [], unchangedName: "" };
  return {
    changed: changed.filter((s) => s.wave < last).map((s) => s.site),
    unchanged: changed.filter((s) => s.wave === last).map((s) => s.site),
    until: until / 1000,
    unchangedName: "last wave, until it changed",
  };
}

/** At most so many, spread evenly: a query has a longest length, and a mean of 150 says enough. */
export function spread<T>(all: readonly T[], most = 150): T[] {
  if (all.length <= most) return [...all];
  return Array.from({ length: most }, (_, i) => all[Math.floor((i * all.length) / most)]!);
}

/** A regular expression of PromQL that matches just these. */
export const anyOf = (names: readonly string[]): string => names.map((n) => n.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&")).join("|");

/** The range that a page shows: from a while before it began to a while after its end. */
export function windowOf(r: Pick<Rollout, "createdAt" | "startedAt" | "endedAt">, now: number): { start: number; end: number; step: number } {
  const began = parseTime(r.startedAt) ?? parseTime(r.createdAt) ?? now;
  const ended = parseTime(r.endedAt);
  const length = Math.max(60_000, (ended ?? now) - began);
  const before = Math.min(3_600_000, Math.max(180_000, length * 0.25));
  const until = ended === undefined ? now : Math.min(now, ended + Math.max(180_000, length * 0.25));
  const wanted = (until - began + before) / 1000 / 150;
  const step = [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].find((s) => s >= wanted) ?? 7200;
  return { start: Math.floor((began - before) / 1000 / step) * step, end: Math.floor(until / 1000 / step) * step, step };
}

/** The samples before a moment. */
export const cut = (line: readonly Sample[], until: number | undefined): Sample[] => line.map(([t, v]) => [t, until !== undefined && t > until ? null : v]);

/** The steps that end before a moment: one with it inside has what came after. */
export const cutSteps = (steps: readonly Between[], until: number | undefined): Between[] => steps.filter((b) => until === undefined || b.to <= until);

/** The time left until a moment: "in 42 s", "in 3 min 10 s", "any moment". */
export function countdown(at: number, now: number): string {
  const s = Math.round((at - now) / 1000);
  if (s <= 0) return "any moment";
  if (s < 60) return `in ${s} s`;
  if (s < 3600) return `in ${Math.floor(s / 60)} min ${s % 60} s`;
  return `in ${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** Whether a person's promotion would skip a gate, or only approve. */
export function wouldSkip(r: Pick<RolloutDetail, "gates">): string[] {
  return r.gates.filter((g) => g.verdict !== "Pass").map((g) => g.name);
}

export interface RolloutFilter {
  q: string;
  state: "active" | "ended" | "";
  phase: RolloutPhase | "";
}

export function parseRolloutFilter(search: string): RolloutFilter {
  const q = new URLSearchParams(search);
  const state = q.get("state");
  return {
    q: q.get("q") ?? "",
    state: state === "active" || state === "ended" ? state : "",
    phase: PHASES.find((p) => p === q.get("phase")) ?? "",
  };
}
