// The inventory of the mock: sites as a table, with as much of the query language as the
// page's tests write. The real one is internal/sitequery.

import { checkBody, conflict, invalidField, notFound } from "./check.mjs";
import { FIGURES, figureOf } from "./links.mjs";

const COLOURS = ["green", "orange", "red", "grey"];
const PHASES = ["Pending", "Approved", "Online", "Offline", "Decommissioned"];
const field = (name, kind, doc, example, more = {}) => ({ name, aliases: [], kind, values: [], keyed: false, grouped: !["number", "time"].includes(kind) && !["name", "reason"].includes(name), doc, example, ...more });

const FIELDS = [
  field("name", "text", "The site's name.", "name=paris-*"),
  field("tenant", "text", "The tenant that it belongs to.", "tenant=acme"),
  field("colour", "choice", "The colour of its health; grey is unknown.", "colour in (red, orange)", { values: COLOURS, aliases: ["color"] }),
  field("score", "number", "Its health, 0 to 100, or unknown.", "score<60"),
  ...["connectivity", "reliability", "security", "performance"].map((d) => field(d, "number", `The score of its ${d}, 0 to 100, or unknown.`, `${d}<40`)),
  field("cpuUsed", "number", "How much of its CPU is in use, percent.", "cpuUsed>80"),
  field("memoryUsed", "number", "How much of its memory is in use on the fullest node, percent.", "memoryUsed>75"),
  field("diskUsed", "number", "How full its fullest filesystem is, percent.", "diskUsed>=90"),
  field("measured", "number", "The value of a signal of its health policy.", "measured.packet-loss>1", { keyed: true }),
  field("since", "time", "When its colour changed last.", "since<1h"),
  field("signal", "list", "The signals that cost it points.", "signal=disk-used"),
  field("reason", "list", "Why it lost points, the worst first; a column shows the first.", 'reason~"not ready"'),
  field("phase", "choice", "Where it is in its life.", "phase=Offline", { values: PHASES }),
  field("lastSeen", "time", "When it was heard of last, or never.", "lastSeen>10m", { aliases: ["seen"] }),
  field("created", "time", "When it registered.", "created<7d"),
  field("region", "text", "Its label region.", "region=eu-west"),
  field("regional", "text", "The regional that it is or was last connected to.", "regional!=eu-1"),
  field("virtualSite", "list", "The virtual sites that it belongs to.", "virtualSite=shared/all-eu", { aliases: ["vs"] }),
  field("address", "text", "Where it stands, as people call it.", "address~Lyon"),
  field("onMap", "flag", "Whether it has a place on the map.", "onMap=false"),
  field("policy", "text", "The HealthPolicy that its score is from.", 'policy=""'),
  field("label", "text", "A label, by its key.", "label.tier=gold", { keyed: true, grouped: true }),
  field("version", "version", "The version of a component.", "version.os<24.04", { keyed: true, grouped: true }),
  field("kubernetes", "version", "The version of its Kubernetes.", "kubernetes<1.33"),
  field("alerts", "number", "How many alerts fire and are not suppressed.", "alerts>0"),
  field("alert", "list", "The names of the alerts that fire.", "alert=SiteSilent"),
  ...FIGURES.map((f) => field(`link.${f}`, "number", `The figure ${f} of its link to its regional.`, `link.${f}>1`)),
  field("maintenance", "flag", "Whether planned work goes on.", "maintenance=false"),
];
const KINDS = Object.fromEntries(FIELDS.map((f) => [f.name, f.kind]));
const canonical = (name) => FIELDS.find((f) => !f.keyed && [f.name, ...f.aliases].some((n) => n.toLowerCase() === name.toLowerCase()))?.name ?? (/^(label|version|measured)(\.|$)/.test(name) ? name : `label.${name}`);
const kindOf = (column) => KINDS[column] ?? KINDS[column.split(".")[0]] ?? "text";

const SECONDS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

class Fault extends Error {
  constructor(at, detail) {
    super(`at character ${at + 1}: ${detail}`);
  }
}

/** Terms and texts, OR between groups of them, and parentheses. */
function parse(text, valueOf) {
  const tokens = [...text.matchAll(/\s*(?:("(?:[^"\\]|\\.)*")|(!=|<=|>=|!~|[=<>~])|([(),])|([^\s()"=,!<>~]+)|(\S))/g)].map((m) => ({ quoted: m[1], op: m[2], mark: m[3], word: m[4], bad: m[5], at: m.index + m[0].length - m[0].trimStart().length }));
  let i = 0;
  const end = () => tokens[i] ?? { at: text.length };
  const text1 = (t) => (t.quoted ? t.quoted.slice(1, -1).replace(/\\(.)/g, "$1") : t.word);
  const or = () => {
    const any = [and()];
    while (/^or$/i.test(end().word ?? "")) {
      i++;
      any.push(and());
    }
    return (s) => any.some((f) => f(s));
  };
  const and = () => {
    const all = [];
    while (i < tokens.length && end().mark !== ")" && !/^or$/i.test(end().word ?? "")) {
      if (/^and$/i.test(end().word ?? "")) i++;
      all.push(term());
    }
    return (s) => all.every((f) => f(s));
  };
  const term = () => {
    const t = end();
    if (/^not$/i.test(t.word ?? "")) {
      i++;
      const f = term();
      return (s) => !f(s);
    }
    if (t.mark === "(") {
      i++;
      const f = or();
      if (end().mark !== ")") throw new Fault(t.at, "there is no ) for this (");
      i++;
      return f;
    }
    if (t.bad === '"') throw new Fault(t.at, 'the text has no closing "');
    if (!t.word && !t.quoted) throw new Fault(t.at, "want a term such as score<60 here");
    i++;
    if (t.word && /^in$/i.test(end().word ?? "") && tokens[i + 1]?.mark === "(") {
      i += 2;
      const values = [];
      for (; end().mark !== ")"; i++) {
        if (i >= tokens.length) throw new Fault(text.length, "want a value here");
        if (end().mark !== ",") values.push(text1(end()));
      }
      i++;
      return (s) => values.some((v) => compare(canonical(t.word), "=", v, s));
    }
    if (!t.word || !end().op) {
      const needle = text1(t).toLowerCase();
      return (s) => [s.name, s.place?.address ?? "", ...s.view.reasons.flatMap((r) => [r.text, r.signal]), ...Object.values(valueOf(s, "labels"))].some((x) => x.toLowerCase().includes(needle));
    }
    const op = tokens[i++].op;
    const v = end();
    if (!v.word && !v.quoted) throw new Fault(v.at, `${t.word}${op} needs a value; for none write ${t.word}${op}""`);
    i++;
    const column = canonical(t.word);
    const want = text1(v);
    if (kindOf(column) === "number" && want !== "unknown" && Number.isNaN(Number(want))) throw new Fault(v.at, `${t.word} is a number: want one, such as score<60, or unknown`);
    if (op.startsWith("!")) return (s) => !compare(column, op === "!=" ? "=" : "~", want, s);
    return (s) => compare(column, op, want, s);
  };
  const ordered = (op, a, b) => ({ "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a === b })[op] ?? false;
  const compare = (column, op, want, s) => {
    const have = valueOf(s, column);
    switch (kindOf(column)) {
      case "number":
        return want === "unknown" ? have === null : have !== null && ordered(op, have, Number(want));
      case "time": {
        if (want === "never") return have === null;
        const m = /^(\d+)([smhdw])$/.exec(want);
        const age = have === null ? Infinity : Date.now() - Date.parse(have);
        return m ? ordered(op, age, Number(m[1]) * SECONDS[m[2]] * 1000) : ordered(op, have === null ? -Infinity : Date.parse(have), Date.parse(want));
      }
      case "flag":
        return have === (want === "true");
      case "list": {
        const list = column === "reason" ? s.view.reasons.map((r) => r.text) : have;
        return list.length === 0 ? want === "" : list.some((x) => (op === "~" ? x.toLowerCase().includes(want.toLowerCase()) : x === want || x.split("/").pop() === want));
      }
      default: {
        if (op === "~") return have.toLowerCase().includes(want.toLowerCase());
        if (op !== "=") return ordered(op, have, want);
        if (want.includes("*")) return new RegExp(`^${want.split("*").map((x) => x.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`).test(have);
        return kindOf(column) === "choice" ? have.toLowerCase() === want.toLowerCase() : have === want;
      }
    }
  };
  const f = tokens.length === 0 ? () => true : or();
  if (i < tokens.length) throw new Fault(tokens[i].at, "there is no ( for this )");
  return f;
}

export class MockInventory {
  constructor(fleet) {
    this.fleet = fleet;
    this.labels = new Map(); // changed by hand, by site
    this.refused = new Map(); // name → why it can't be changed
  }

  labelsOf(s) {
    const own = { ...this.fleet.object(s, Date.now()).labels, ...this.labels.get(s) };
    return Object.fromEntries(Object.entries(own).filter(([, v]) => v !== null));
  }

  value(s, column) {
    const [base, key] = [column.split(".")[0], column.slice(column.indexOf(".") + 1)];
    const alerts = s.colour === "red" ? ["DiskFull", "SiteUnhealthy"] : s.colour === "orange" ? ["SiteUnhealthy"] : [];
    switch (base) {
      case "labels": return this.labelsOf(s);
      case "label": return this.labelsOf(s)[key] ?? "";
      case "version": return (column === "version" ? (s.year > 2018 ? "0.4.2" : "0.4.1") : this.fleet.object(s, Date.now()).versions[key]) ?? "";
      case "kubernetes": return "v1.35.2";
      case "connectivity": case "reliability": case "security": case "performance": return s.view.dimensions[base].score;
      case "signal": return s.view.reasons.map((r) => r.signal).filter(Boolean);
      case "reason": return s.view.reasons[0]?.text ?? "";
      case "virtualSite": return s.view.virtualSites;
      case "cpuUsed": return measured(s, "cpu-used");
      case "memoryUsed": return round(100 - measured(s, "memory-available"), measured(s, "memory-available") === null);
      case "diskUsed": return measured(s, "disk-used");
      case "measured": return measured(s, key);
      case "link": return figureOf(s, key);
      case "onMap": return s.place !== null;
      case "address": return s.place?.address ?? "";
      case "policy": return "default";
      case "regional": return s.phase === "Online" ? `${s.region.slice(0, 2)}-1` : "";
      case "created": return new Date(this.fleet.started - (s.year % 9) * 86_400_000 * 90).toISOString();
      case "alerts": return alerts.length;
      case "alert": return alerts;
      case "maintenance": return s.maintenance !== null;
      default: return s.view[base] ?? null;
    }
  }

  /** The sites that a query means, or a problem. */
  matching(q, tenants) {
    const mine = [...this.fleet.sites.values()].filter((s) => tenants.includes(s.tenant));
    try {
      const found = mine.filter(parse(q.get("q") ?? "", (s, column) => this.value(s, column)));
      const notes = [];
      for (const [, key] of (q.get("q") ?? "").matchAll(/([\w./-]+)\s*[=~]/g)) {
        const c = canonical(key);
        if (c.startsWith("label.") && !mine.some((s) => this.value(s, c) !== "")) notes.push(`no site that you may read has a label ${c.slice(6)}, and no field has that name`);
      }
      return { mine, found, notes };
    } catch (e) {
      return invalidField("q", e.message);
    }
  }

  map(q, tenants) {
    const m = this.matching(q, tenants);
    if (m.problem) return m;
    const { mine, found, notes } = m;
    const by = q.get("by") ? canonical(q.get("by")) : "";
    const kind = by ? kindOf(by) : "";
    const placed = found.filter((s) => s.place).sort((a, b) => (a.tenant + "/" + a.name < b.tenant + "/" + b.name ? -1 : 1));
    const names = [...new Set(placed.map((s) => s.tenant))];
    const out = {
      asOf: this.fleet.asOf, readable: mine.length, total: found.length, unplaced: found.length - placed.length, maintenance: found.filter((s) => s.maintenance).length, counts: count(found), tenants: names,
      names: placed.map((s) => s.name), tenant: placed.map((s) => names.indexOf(s.tenant)), latitude: placed.map((s) => s.place.latitude), longitude: placed.map((s) => s.place.longitude),
      colour: placed.map((s) => ({ green: "g", orange: "o", red: "r", grey: "x" })[s.colour]).join(""), score: placed.map((s) => (s.view.score === null ? null : Math.round(s.view.score))),
      inMaintenance: placed.flatMap((s, i) => (s.maintenance ? [i] : [])), by, kind, notes,
    };
    if (kind === "number") out.values = placed.map((s) => this.value(s, by));
    else if (by) {
      const cells = placed.map((s) => String(this.value(s, by)));
      const n = new Map();
      for (const c of cells) n.set(c, (n.get(c) ?? 0) + 1);
      out.categories = [...n].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 12).map(([c]) => c);
      out.category = cells.map((c) => out.categories.indexOf(c));
    }
    return { json: out };
  }

  distributions(q, tenants) {
    const m = this.matching(q, tenants);
    if (m.problem) return m;
    const columns = (q.get("of") || "cpuUsed,memoryUsed,diskUsed").split(",").map(canonical);
    const bad = columns.find((c) => kindOf(c) !== "number");
    if (bad) return invalidField("of", `${bad} is no number; want columns that are, such as cpuUsed,memoryUsed,diskUsed`);
    const distributions = columns.map((column) => {
      const v = m.found.map((s) => this.value(s, column)).filter((x) => x !== null).sort((a, b) => a - b);
      const at = (f) => v[Math.max(0, Math.ceil(f * v.length) - 1)] ?? null;
      const bins = v.length === 0 ? [] : Array.from({ length: 20 }, (_, i) => ({
        from: 5 * i, to: 5 * (i + 1), sites: v.filter((x) => Math.min(19, Math.floor(x / 5)) === i).length,
        query: i === 0 ? `${column}<5` : i === 19 ? `${column}>=95` : `${column}>=${5 * i} ${column}<${5 * (i + 1)}`,
      }));
      return { column, known: v.length, unknown: m.found.length - v.length, mean: v.length ? round(v.reduce((n, x) => n + x, 0) / v.length) : null, least: at(0), p10: at(0.1), median: at(0.5), p90: at(0.9), most: at(1), bins };
    });
    return { json: { asOf: this.fleet.asOf, readable: m.mine.length, total: m.found.length, distributions, notes: m.notes } };
  }

  list(q, tenants, res) {
    const m = this.matching(q, tenants);
    if (m.problem) return m;
    const { mine, found, notes } = m;
    const columns = (q.get("columns") || "name,phase,colour,score,region,lastSeen,version,alerts,reason").split(",").map(canonical);
    const order = (q.get("sort") ?? "").split(",").filter(Boolean).map((c) => ({ column: canonical(c.replace(/^-/, "")), down: c.startsWith("-") }));
    const keyed = found.map((s) => ({ s, key: order.map((o) => this.value(s, o.column)) }));
    keyed.sort((a, b) => {
      for (const [i, o] of order.entries()) {
        const [x, y] = [a.key[i], b.key[i]];
        if ((x === null || x === "") !== (y === null || y === "")) return x === null || x === "" ? 1 : -1;
        const n = kindOf(o.column) === "choice" ? [...COLOURS, ...PHASES].indexOf(x) - [...COLOURS, ...PHASES].indexOf(y) : x < y ? -1 : x > y ? 1 : 0;
        if (n !== 0) return o.down ? -n : n;
      }
      return a.s.name < b.s.name ? -1 : a.s.name > b.s.name ? 1 : a.s.tenant < b.s.tenant ? -1 : 1;
    });
    const row = (s) => ({ name: s.name, tenant: s.tenant, ...Object.fromEntries(columns.map((c) => [c, this.value(s, c)])) });
    if (q.get("format") === "csv") {
      const cell = (v) => (v === null ? "" : Array.isArray(v) ? v.join(" ") : /[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
      res.writeHead(200, { "Content-Type": "text/csv; charset=utf-8", "Cache-Control": "no-store" });
      res.end([columns.join(","), ...keyed.map(({ s }) => columns.map((c) => cell(this.value(s, c))).join(","))].join("\n") + "\n");
      return undefined;
    }
    const from = Number(q.get("cursor") || 0);
    const limit = Number(q.get("limit") || 100);
    const rows = q.get("limit") === "0" ? [] : keyed.slice(from, from + limit).map(({ s }) => row(s));
    const out = { asOf: this.fleet.asOf, columns, readable: mine.length, total: found.length, counts: count(found), sites: rows, notes };
    if (q.get("group")) out.groups = this.groups(canonical(q.get("group")), found);
    if (limit > 0 && from + limit < found.length) out.nextCursor = String(from + limit);
    return { json: out };
  }

  /** Sites by their value of a column, those of most first. */
  split(name, found) {
    const column = canonical(name);
    const by = new Map();
    for (const s of found) {
      const v = this.value(s, column);
      for (const x of Array.isArray(v) ? (v.length > 0 ? v : [""]) : [String(v)]) {
        if (!by.has(x)) by.set(x, []);
        by.get(x).push(s);
      }
    }
    return [...by].map(([value, sites]) => ({ value, query: `${column}=${/^[\w./:-]+$/.test(value) ? value : JSON.stringify(value)}`, sites })).sort((a, b) => b.sites.length - a.sites.length || (a.value < b.value ? -1 : 1));
  }

  groups(column, found) {
    return this.split(column, found).map(({ value, query, sites }) => {
      const scores = sites.map((s) => s.view.score).filter((x) => x !== null);
      return {
        value, query, sites: sites.length, counts: count(sites),
        mean: scores.length > 0 ? Math.round((10 * scores.reduce((n, x) => n + x, 0)) / scores.length) / 10 : null, worst: scores.length > 0 ? Math.min(...scores) : null,
      };
    });
  }

  fields(tenants) {
    const mine = [...this.fleet.sites.values()].filter((s) => tenants.includes(s.tenant));
    const keys = (sets) => {
      const all = new Map();
      for (const set of sets) for (const [k, v] of Object.entries(set)) {
        if (!all.has(k)) all.set(k, new Map());
        all.get(k).set(v, (all.get(k).get(v) ?? 0) + 1);
      }
      return [...all].sort().map(([key, vs]) => ({ key, values: [...vs].sort((a, b) => b[1] - a[1]).slice(0, 20).map(([v]) => v), more: Math.max(0, vs.size - 20) }));
    };
    return { json: { fields: FIELDS, labels: keys(mine.map((s) => this.labelsOf(s))), versions: keys(mine.slice(0, 1).map((s) => this.fleet.object(s, Date.now()).versions)), measured: mine.slice(0, 1).flatMap((s) => this.fleet.detail(s).signals.map((x) => x.name)).sort() } };
  }

  change(body, tenants) {
    const bad = checkBody(body, ["sites", "labels", "maintenance", "endMaintenance", "approve"]);
    if (bad) return bad;
    if (!(body.sites?.length > 0 && body.sites.length <= 500)) return invalidField("sites", `want 1 to 500 of them, have ${body.sites?.length ?? 0}; send more in several requests`);
    if ([body.labels, body.maintenance, body.endMaintenance, body.approve].filter(Boolean).length !== 1) return invalidField("body", "want exactly one of labels, maintenance, endMaintenance and approve");
    if (body.maintenance && !body.maintenance.reason) return invalidField("reason", "want 1 to 200 characters, have 0");
    const out = { changed: 0, failed: [] };
    for (const { tenant, name } of body.sites) {
      const s = tenants.includes(tenant) ? this.fleet.sites.get(`${tenant}/${name}`) : undefined;
      let fail = !s ? notFound(`change the site: sites.muster.dev "${name}" not found`).problem : this.refused.has(name) ? { status: 403, detail: this.refused.get(name) } : undefined;
      if (!fail && body.approve && s.phase === "Decommissioned") fail = conflict(`site ${tenant}/${name} is rejected or decommissioned, for good; delete the Site and register the machine anew`).problem;
      if (fail) {
        out.failed.push({ tenant, name, status: fail.status, detail: fail.detail });
        continue;
      }
      if (body.labels) this.labels.set(s, { ...this.labels.get(s), ...body.labels });
      if (body.maintenance) s.maintenance = { reason: body.maintenance.reason, until: body.maintenance.until ?? null };
      if (body.endMaintenance) s.maintenance = null;
      if (body.approve && s.phase === "Pending") s.phase = "Approved";
      out.changed++;
    }
    return { json: out };
  }
}

/** The value of a signal, to a tenth. */
function measured(s, name) {
  const g = s.signals.find((x) => x.name === name);
  return g?.known ? round(g.value) : null;
}

const round = (v, unknown = false) => (unknown ? null : Math.round(v * 10) / 10);

function count(sites) {
  const out = Object.fromEntries(COLOURS.map((c) => [c, 0]));
  for (const s of sites) out[s.colour]++;
  return out;
}
