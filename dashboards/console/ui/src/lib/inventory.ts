import type { Colour, SavedView, SiteField, SiteFields } from "../api/types";

/** What the inventory shows; it lives in the URL, so that a view can be shared. */
export interface View {
  q: string;
  /** Columns to sort by, as the API takes them; "" sorts by name. */
  sort: string;
  columns: readonly string[];
  /** The column by which sites are grouped; "" for none. */
  group: string;
  /** The value of the group that is open; undefined: none is. */
  open: string | undefined;
  tenant: string;
}

export const DEFAULT_COLUMNS: readonly string[] = ["name", "colour", "score", "phase", "region", "alerts", "lastSeen", "version", "reason"];

export function parseView(search: string): View {
  const p = new URLSearchParams(search);
  const columns = (p.get("columns") ?? "").split(",").filter(Boolean);
  return {
    q: p.get("q") ?? "",
    sort: p.get("sort") ?? "",
    columns: columns.length > 0 ? withName(columns) : DEFAULT_COLUMNS,
    group: p.get("group") ?? "",
    open: p.get("open") ?? undefined,
    tenant: p.get("tenant") ?? "",
  };
}

const withName = (columns: readonly string[]): string[] => ["name", ...columns.filter((c) => c !== "name")];

export function formatView(v: View): string {
  const p = new URLSearchParams();
  if (v.q) p.set("q", v.q);
  if (v.sort) p.set("sort", v.sort);
  if (v.columns.join() !== DEFAULT_COLUMNS.join()) p.set("columns", v.columns.join(","));
  if (v.group) p.set("group", v.group);
  if (v.group && v.open !== undefined) p.set("open", v.open);
  if (v.tenant) p.set("tenant", v.tenant);
  return p.toString();
}

/** The next order when a heading is pressed: rising, falling, by name again. Numbers and times begin with the end that is of interest. */
export function nextSort(sort: string, column: string): string {
  const first = column === "alerts" || column.startsWith("alerts.") || column === "lastSeen" ? `-${column}` : column;
  const second = first.startsWith("-") ? column : `-${column}`;
  if (sort === first) return second;
  if (sort === second) return "";
  return column === "name" && sort === "" ? "-name" : first;
}

export function sortOf(sort: string, column: string): "ascending" | "descending" | "none" {
  const first = (sort || "name").split(",")[0];
  return first === column ? "ascending" : first === `-${column}` ? "descending" : "none";
}

/** Both queries together. */
export function both(q: string, term: string): string {
  if (!q.trim()) return term;
  return /\bor\b/i.test(outermost(q)) ? `(${q.trim()}) ${term}` : `${q.trim()} ${term}`;
}

const COLOUR_TERM = /(?<=^|\s)colour(?:=(\w+)|\s+in\s*\(([^()]*)\))(?=\s|$)/gi;

/** The query with what stands in quotes or brackets blanked out, in place. */
function outermost(q: string): string {
  let depth = 0;
  let quoted = false;
  return q.split("").map((c, i, all) => {
    if (c === '"' && all[i - 1] !== "\\") {
      quoted = !quoted;
      return " ";
    }
    if (quoted) return " ";
    if (c === ")") depth--;
    const inside = depth > 0;
    if (c === "(") depth++;
    return inside ? " " : c;
  }).join("");
}

/** The term of a query that chooses colours, and which; none where it is one of several that may hold, or must not. */
function colourTerm(q: string): { from: number; to: number; colours: string[] } | undefined {
  const plain = outermost(q);
  if (/\b(or|not)\b/i.test(plain)) return undefined;
  for (const m of q.matchAll(COLOUR_TERM)) {
    if (plain[m.index] === q[m.index]) return { from: m.index, to: m.index + m[0].length, colours: (m[1] ?? m[2] ?? "").split(",").map((c) => c.trim().toLowerCase()).filter(Boolean) };
  }
  return undefined;
}

const coloursOf = (q: string): string[] => colourTerm(q)?.colours ?? [];

/** The query that means one colour more, or less: the colours of its own term are joined. */
export function toggleColour(q: string, colour: Colour): string {
  const term = colourTerm(q);
  const old = term?.colours ?? [];
  const next = old.includes(colour) ? old.filter((c) => c !== colour) : [...old, colour];
  const rest = term ? `${q.slice(0, term.from)} ${q.slice(term.to)}`.replace(/\s+/g, " ").trim() : q;
  if (next.length === 0) return rest;
  return both(rest, next.length === 1 ? `colour=${next[0]!}` : `colour in (${next.join(", ")})`);
}

export const hasColour = (q: string, colour: Colour): boolean => coloursOf(q).includes(colour);

/** The query with a term added, or without it if it has it. */
export function toggleTerm(q: string, term: string): string {
  const words = q.trim().split(/\s+/);
  return words.includes(term) ? words.filter((w) => w !== term).join(" ") : both(q, term);
}

export const hasTerm = (q: string, term: string): boolean => q.trim().split(/\s+/).includes(term);

/** The column's name as a heading. */
export function columnTitle(column: string): string {
  const plain: Record<string, string> = { created: "Registered", lastSeen: "Last seen", virtualSite: "Virtual sites", version: "Agent", since: "Since", cpuUsed: "CPU used" };
  if (plain[column]) return plain[column];
  if (column.startsWith("label.")) return column.slice(6);
  if (column.startsWith("measured.")) return column.slice(9);
  if (column.startsWith("version.")) return `${column.slice(8)} version`;
  const [base, rest] = column.split(".");
  const words = base!.replace(/[A-Z]/g, (c) => ` ${c.toLowerCase()}`);
  return words.charAt(0).toUpperCase() + words.slice(1) + (rest ? `, ${rest}` : "");
}

export type Kind = SiteField["kind"];

export function kindOf(column: string, fields: readonly SiteField[] | undefined): Kind {
  const f = fields?.find((x) => x.name === column) ?? fields?.find((x) => x.keyed && column.startsWith(`${x.name}.`));
  return f?.kind ?? "text";
}

/** How wide a column is, in pixels, and how much of what is left it takes. */
export function widthOf(column: string, kind: Kind): { px: number; share: number } {
  // A phone shows these three.
  if (column === "name") return { px: 180, share: 1 };
  if (column === "colour") return { px: 92, share: 0 };
  if (column === "score") return { px: 76, share: 0 };
  if (column === "reason") return { px: 260, share: 3 };
  if (column === "address") return { px: 150, share: 1 };
  if (kind === "number") return { px: 104, share: 0 };
  if (kind === "time") return { px: 118, share: 0 };
  if (kind === "list") return { px: 220, share: 1 };
  if (kind === "choice" || kind === "flag") return { px: 120, share: 0 };
  return { px: 140, share: 0.4 };
}

export interface Suggestion {
  /** What is put in the place of what was typed. */
  text: string;
  note: string;
}

export interface Completion {
  from: number;
  to: number;
  options: Suggestion[];
}

const MOST = 8;
/** A value as a query has it: in quotes where it needs them. */
export const quoteValue = (v: string): string => (v !== "" && /^[^\s()"=,!<>~*/][^\s()"=,!<>~*]*$/.test(v) ? v : JSON.stringify(v));

/** What may stand where the caret is: fields and labels, or the values of the field before an operator. */
export function complete(q: string, caret: number, known: SiteFields | undefined): Completion | undefined {
  if (!known) return undefined;
  const before = q.slice(0, caret);
  if ((before.replace(/\\./g, "").match(/"/g)?.length ?? 0) % 2 === 1) return undefined;
  const typed = /[^\s()"=,!<>~]*$/.exec(before)![0];
  const rest = /^[^\s()"=,!<>~]*/.exec(q.slice(caret))![0];
  const from = caret - typed.length;
  const to = caret + rest.length;
  const ahead = before.slice(0, from);
  const low = typed.toLowerCase();
  const of = /([\w./-]+)\s*(?:=|!=|~|!~)\s*$/.exec(ahead) ?? /([\w./-]+)\s+(?:not\s+)?in\s*\((?:[^()]*,)?\s*$/i.exec(ahead);
  let options: Suggestion[];
  if (of) {
    options = valuesOf(of[1]!, known)
      .filter((v) => v.toLowerCase().startsWith(low) && v !== typed)
      .map((v) => ({ text: quoteValue(v), note: "" }));
  } else {
    if (typed === "") return undefined;
    const fields = known.fields.filter((f) => !f.keyed).map((f) => ({ text: f.name, note: f.doc, also: f.aliases }));
    const keys = [
      ...known.labels.map((l) => ({ text: known.fields.some((f) => f.name === l.key) ? `label.${l.key}` : l.key, note: `label: ${l.values.slice(0, 4).join(", ")}${l.more > 0 || l.values.length > 4 ? ", …" : ""}`, also: [l.key, `label.${l.key}`] })),
      ...known.measured.map((m) => ({ text: `measured.${m}`, note: "what this signal measures", also: [] as string[] })),
      ...known.versions.map((v) => ({ text: `version.${v.key}`, note: v.values.slice(0, 3).join(", "), also: [] as string[] })),
    ];
    options = [...fields, ...keys].filter((f) => [f.text, ...f.also].some((n) => n.toLowerCase().startsWith(low)) && f.text !== typed).map(({ text, note }) => ({ text, note }));
  }
  return options.length > 0 ? { from, to, options: options.slice(0, MOST) } : undefined;
}

function valuesOf(name: string, known: SiteFields): readonly string[] {
  const low = name.toLowerCase();
  const f = known.fields.find((x) => !x.keyed && (x.name.toLowerCase() === low || x.aliases.some((a) => a.toLowerCase() === low)));
  if (f?.kind === "flag") return ["true", "false"];
  if (f && f.values.length > 0) return f.values;
  const version = low === "version" ? "agent" : low === "kubernetes" ? "kubernetes" : low.startsWith("version.") ? name.slice(8) : undefined;
  if (version !== undefined) return known.versions.find((v) => v.key === version)?.values ?? [];
  const key = low.startsWith("label.") ? name.slice(6) : name;
  return known.labels.find((l) => l.key === key)?.values ?? [];
}

/** What a saved view shows, in the tenant that is chosen: it is a question, and where it is kept says only whose it is. */
export const viewOf = (v: SavedView, tenant: string): View => ({
  q: v.query,
  sort: v.sort,
  columns: v.columns.length > 0 ? withName(v.columns) : DEFAULT_COLUMNS,
  group: v.group,
  open: undefined,
  tenant,
});

/** Names joined into regular expressions that are no longer than a matcher's value may be. */
export function patterns(names: readonly string[], most = 4000): string[] {
  const out: string[] = [];
  for (const n of names) {
    const last = out.at(-1);
    if (last === undefined || last.length + n.length + 1 > most) out.push(n);
    else out[out.length - 1] = `${last}|${n}`;
  }
  return out;
}

/** KEY=VALUE and KEY- (takes it away), separated by spaces or commas. */
export function parseLabels(text: string): { labels: Record<string, string | null>; fault: string } {
  const labels: Record<string, string | null> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const m = /^([^=]+)=(.*)$/.exec(part);
    const gone = /^([^=]+)-$/.exec(part);
    if (m) labels[m[1]!] = m[2]!;
    else if (gone) labels[gone[1]!] = null;
    else return { labels, fault: `${part}: want KEY=VALUE, or KEY- to take a label away` };
  }
  return { labels, fault: Object.keys(labels).length === 0 ? "Want KEY=VALUE, or KEY- to take a label away." : "" };
}
