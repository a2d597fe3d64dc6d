// Rollouts over the invented sites, for the mock server: one in each phase that looks
// different. Only the one that moves web moves: POST /mock/wave {verdict} lets its wave
// go on ("Pass") or stops it ("Fail").

import { checkBody, conflict, forbidden, invalidField, listOf, notFound } from "./check.mjs";

const MINUTE = 60_000;
const iso = (t) => (t === null ? null : new Date(t).toISOString());
const STEPS = ["waiting", "offline", "held", "updating", "ready", "passed", "failed", "rolledBack"];
const ENDED = ["RolledBack", "Completed", "Superseded", "Invalid"];
const GATE = { value: "", limit: "", sites: 0, ofSites: 0, seconds: 0, ofSeconds: 0, worst: [] };

export class MockRollouts {
  constructor(fleet, now = Date.now()) {
    this.fleet = fleet;
    this.rights = { control: true, delete: true, approve: true, skipGates: true };
    this.all = [];
    this.streams = new Set();
    const member = (vs) => [...fleet.sites.values()].filter((s) => s.tenant === "acme" && s.view.virtualSites.includes(vs)).map((s) => s.name).sort();
    const europe = member("shared/all-eu");
    const waves = (names, ...shares) => {
      const shuffled = [...names].sort((a, b) => ((a.length * 31 + a.charCodeAt(2) * 7 + a.charCodeAt(0)) % 97) - ((b.length * 31 + b.charCodeAt(2) * 7 + b.charCodeAt(0)) % 97) || (a < b ? -1 : 1));
      let from = 0;
      return shares.map((p, i) => {
        const until = i === shares.length - 1 ? shuffled.length : Math.max(from + 1, Math.round((shuffled.length * p) / 100));
        const sites = shuffled.slice(from, until);
        from = until;
        return { name: i === shares.length - 1 ? "the rest" : `${p} %`, sites, soak: 15 * 60, startedAt: null, passedAt: null };
      });
    };
    const add = (o) => this.all.push({ tenant: "acme", namespace: "shop", message: "", virtualSites: ["shared/all-eu"], strategy: "Canary", next: "", nextAt: null, startedAt: null, endedAt: null, gates: [], decisions: [], contents: [], by: "", policy: "", supersedes: "", wave: 0, waves: [], steps: new Map(), control: {}, ...o });
    const change = (kind, name, text, apiVersion = "apps/v1") => ({ apiVersion, kind, name, text });
    const said = (at, what, text, by = "") => ({ at: iso(at), what, text, by });

    // Under way: the second of four waves, one failed, some offline.
    const web = waves(europe, 2, 12, 50, 100);
    web[0].startedAt = now - 22 * MINUTE;
    web[0].passedAt = now - 6 * MINUTE;
    web[1].startedAt = now - 6 * MINUTE;
    add({
      name: "web-5b21c9d0", createdAt: now - 23 * MINUTE, startedAt: now - 22 * MINUTE, phase: "Progressing", wave: 2, waves: web, policy: "shop", by: "grace@example.com",
      message: "Wave 2 of 4 is being watched: its gates hold since 4 min, of 15 min.", next: "wave 3, with its sites, if all gates hold until then", nextAt: now + 11 * MINUTE,
      changes: [change("Deployment", "web", "as it was written")], contents: [{ index: 0, text: "registry.example/shop/web:2.4.1", new: false }, { index: 1, text: "registry.example/shop/web:2.5.0", new: true }],
      steps: new Map(web.flatMap((w, i) => w.sites.map((s, k) => [s, i === 0 ? "passed" : i === 1 ? (k === 1 ? "failed" : k % 5 === 2 ? "updating" : "ready") : i === 2 && k % 11 === 3 ? "offline" : i === 2 && k % 17 === 5 ? "held" : "waiting"]))),
      gates: [
        { ...GATE, name: "ready", verdict: "Pass", text: "9 of 9 sites that are online are ready", value: "100%", limit: "at least 90%", sites: 9, ofSites: 11, seconds: 240, ofSeconds: 900 },
        { ...GATE, name: "alerts", verdict: "Pass", text: "no critical alert that did not fire before", limit: "critical", sites: 11, ofSites: 11, seconds: 240, ofSeconds: 900 },
        { ...GATE, name: "before", verdict: "Pass", text: "Performance is 1.8 points lower than before the change", value: "1.8", limit: "at most 10 points", sites: 9, ofSites: 11, seconds: 240, ofSeconds: 900, worst: [web[1].sites[0], web[1].sites[2]] },
        { ...GATE, name: "peers", verdict: "Wait", text: "Performance fell by 1.1 points more than at 60 unchanged sites", value: "1.1", limit: "at most 10 points", sites: 9, ofSites: 11, seconds: 240, ofSeconds: 900 },
        { ...GATE, name: "errors", verdict: "Unknown", text: "the query has no value for 2 of 11 sites yet", limit: "at most 0.05", sites: 9, ofSites: 11 },
      ],
      decisions: [said(now - 22 * MINUTE, "WaveStarted", "Wave 1 of 4 begins: 2 sites."), said(now - 6 * MINUTE, "WavePassed", "Wave 1 has passed: all gates held for 15 min."), said(now - 6 * MINUTE, "WaveStarted", "Wave 2 of 4 begins: 9 sites."), said(now - 3 * MINUTE, "SiteFailed", `Site ${web[1].sites[1]} failed: not ready within 10 min. 1 of 2 that may fail.`)],
    });

    // Rolled back: nothing but the first wave was touched.
    const bad = waves(europe, 5, 50, 100);
    bad[0].startedAt = now - 190 * MINUTE;
    add({
      name: "checkout-77aa01f3", createdAt: now - 191 * MINUTE, startedAt: now - 190 * MINUTE, endedAt: now - 178 * MINUTE, phase: "RolledBack", wave: 1, waves: bad,
      message: "Put back: at the sites of wave 1 Reliability fell by 31 points more than at those that did not change.", changes: [change("Deployment", "checkout", "app=registry.example/shop/checkout:1.9.0")],
      contents: [{ index: 0, text: "registry.example/shop/checkout:1.8.0", new: false }, { index: 1, text: "registry.example/shop/checkout:1.9.0", new: true }],
      steps: new Map(bad.flatMap((w, i) => w.sites.map((s) => [s, i === 0 ? "rolledBack" : "waiting"]))),
      gates: [{ ...GATE, name: "peers", verdict: "Fail", text: "Reliability fell by 31 points more than at the 60 unchanged sites", value: "31", limit: "at most 10 points", sites: 5, ofSites: 5, seconds: 45, ofSeconds: 900, worst: bad[0].sites.slice(0, 3) }],
      decisions: [said(now - 190 * MINUTE, "WaveStarted", "Wave 1 of 3 begins."), said(now - 182 * MINUTE, "GateFailed", "The gate peers fails: Reliability fell by 31 points more than at the unchanged sites."), said(now - 182 * MINUTE, "RollingBack", "All sites that have the change are put back."), said(now - 178 * MINUTE, "RolledBack", "All sites are back.")],
    });

    // Completed in ten hours, of a policy; paused by itself; queued; one of another tenant.
    const done = waves(europe, 1, 10, 100);
    for (const [i, w] of done.entries()) Object.assign(w, { startedAt: now - (1000 - i * 200) * MINUTE, passedAt: now - (816 - i * 200) * MINUTE });
    add({ name: "web-0c77e1a4", createdAt: now - 1001 * MINUTE, startedAt: now - 1000 * MINUTE, endedAt: now - 400 * MINUTE, phase: "Completed", wave: 3, waves: done, message: "All sites have it.", changes: [change("Deployment", "web", "as it was written")], contents: [{ index: 0, text: "registry.example/shop/web:2.4.0", new: false }, { index: 1, text: "registry.example/shop/web:2.4.1", new: true }], steps: new Map(done.flatMap((w) => w.sites.map((s) => [s, "passed"]))), decisions: [said(now - 400 * MINUTE, "Completed", "All sites have it.")], supersedes: "web-00000001" });
    const policy = waves(member("shared/canary"), 50, 100);
    policy[0].startedAt = now - 50 * MINUTE;
    add({ namespace: "system", name: "lean-metrics-1f00ba44", createdAt: now - 50 * MINUTE, startedAt: now - 50 * MINUTE, phase: "Paused", wave: 1, waves: policy, virtualSites: ["shared/canary"], message: "Paused by itself: the gate scores fails, and the plan says to wait for people.", changes: [change("CollectionPolicy", "lean-metrics", "new content", "muster.dev/v1alpha1")], steps: new Map(policy.flatMap((w, i) => w.sites.map((s) => [s, i === 0 ? "ready" : "waiting"]))), gates: [{ ...GATE, name: "scores", verdict: "Fail", text: "the mean score is 58", value: "58", limit: "at least 70", sites: 4, ofSites: 4 }], decisions: [said(now - 30 * MINUTE, "Paused", "Paused by itself: the gate scores fails.")] });
    add({ name: "basket-db-9e1d2c3b", createdAt: now - 2 * MINUTE, phase: "Queued", message: "Behind web-5b21c9d0, which moves the same sites.", changes: [change("StatefulSet", "basket-db", "revision 3"), change("ConfigMap", "settings", "new content", "v1")] });
    add({ tenant: "globex", name: "till-4d4d4d4d", createdAt: now - 9000 * MINUTE, endedAt: now - 8999 * MINUTE, phase: "Invalid", message: "spec.virtualSites[0]: there is no virtual site shared/everywhere", changes: [change("Deployment", "till", "app=till:2")] });
  }

  counts(steps) {
    const n = (s) => steps.filter((x) => x === s).length;
    return { total: steps.length, waiting: n("waiting"), updating: n("updating"), updated: n("ready") + n("passed"), passed: n("passed"), failed: n("failed"), offline: n("offline"), held: n("held"), rolledBack: n("rolledBack") };
  }

  view(r) {
    return {
      tenant: r.tenant, namespace: r.namespace, name: r.name, createdAt: iso(r.createdAt), phase: r.control.paused && !ENDED.includes(r.phase) ? "Paused" : r.phase, message: r.control.paused && !ENDED.includes(r.phase) ? "Paused by ada@example.com." : r.message, changes: r.changes, virtualSites: r.virtualSites, strategy: r.strategy,
      progress: r.waves.length > 0 ? `${r.wave}/${r.waves.length}` : "", wave: r.wave, waveCount: r.waves.length, sites: this.counts([...r.steps.values()]), paused: r.control.paused === true, next: r.next, nextAt: iso(r.nextAt), startedAt: iso(r.startedAt), endedAt: iso(r.endedAt),
      waves: r.waves.map((w, i) => ({ number: i + 1, name: w.name, sites: this.counts(w.sites.map((s) => r.steps.get(s))), soakSeconds: w.soak, approval: false, startedAt: iso(w.startedAt), passedAt: iso(w.passedAt) })),
    };
  }

  detail(r) {
    return { ...this.view(r), by: r.by, policy: r.policy, supersedes: r.supersedes, spec: { changes: r.changes.map(({ text: _, ...c }) => c), control: r.control }, gates: r.gates, decisions: r.decisions, contents: r.contents, rights: this.rights };
  }

  list(q, tenants) {
    const phases = listOf(q, "phase");
    const [text, state, object, namespace] = ["q", "state", "object", "namespace"].map((k) => q.get(k) ?? "");
    const [kind, name] = object.split("/");
    const fits = this.all
      .filter((r) => tenants.includes(r.tenant) && (!namespace || r.namespace === namespace))
      .filter((r) => (state === "active" ? !ENDED.includes(r.phase) : state === "ended" ? ENDED.includes(r.phase) : true))
      .filter((r) => !object || r.changes.some((c) => c.kind === kind.split(".")[0] && c.name === name))
      .filter((r) => r.name.includes(text.toLowerCase()) || r.changes.some((c) => `${c.kind}/${c.name}`.toLowerCase().includes(text.toLowerCase())))
      .map((r) => this.view(r))
      .filter((v) => phases.length === 0 || phases.includes(v.phase))
      .sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
    const limit = Number(q.get("limit") ?? 100);
    const from = Number(q.get("cursor") || 0);
    return { json: { total: fits.length, rollouts: fits.slice(from, from + limit), ...(from + limit < fits.length ? { nextCursor: String(from + limit) } : {}) } };
  }

  with(m, q, tenants, f) {
    const r = this.all.find((x) => tenants.includes(x.tenant) && (!q.get("tenant") || x.tenant === q.get("tenant")) && x.namespace === m[1] && x.name === decodeURIComponent(m[2]));
    return r ? f(r) : notFound(`there is no rollout "${m[1]}/${m[2]}" that you may read; GET /api/v1/rollouts lists them`);
  }

  sites(r, q) {
    const steps = listOf(q, "step");
    const all = r.waves.flatMap((w, i) => w.sites.map((site) => ({ site, wave: i + 1, step: r.steps.get(site), has: ["updating", "ready", "passed", "failed"].includes(r.steps.get(site)) ? 1 : 0 }))).filter((s) => (!q.get("wave") || s.wave === Number(q.get("wave"))) && s.site.includes(q.get("q") ?? ""));
    const fits = all.filter((s) => steps.length === 0 || steps.includes(s.step));
    const limit = Number(q.get("limit") ?? 100);
    const from = Number(q.get("cursor") || 0);
    return { json: { total: fits.length, counts: Object.fromEntries(STEPS.map((s) => [s, all.filter((x) => x.step === s).length])), sites: fits.slice(from, from + limit), ...(from + limit < fits.length ? { nextCursor: String(from + limit) } : {}) } };
  }

  /** Sends a rollout in full whenever it changes, as the console does. */
  stream(req, res, r) {
    res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    res.write("retry: 2000\n\n");
    let said = "";
    let quiet = 0;
    const tell = () => {
      const is = this.all.includes(r) ? JSON.stringify(this.detail(r)) : "{}";
      if (is !== said) res.write(`event: ${is === "{}" ? "removed" : "rollout"}\ndata: ${is}\n\n`);
      else if (++quiet % 40 === 0) res.write(": alive\n\n");
      said = is;
    };
    tell();
    const timer = setInterval(tell, 250);
    this.streams.add(res);
    req.on("close", () => {
      clearInterval(timer);
      this.streams.delete(res);
    });
    return undefined;
  }

  /** Cuts the streams: the fleet is another one. */
  end() {
    for (const res of this.streams) res.end();
  }

  act(r, action, body, user) {
    const need = (right, verb) => (this.rights[right] ? undefined : forbidden(`rollouts.muster.dev "${r.name}" is forbidden: User "${user}" cannot ${verb} resource "rollouts"`));
    const bad = checkBody(body ?? {}, { promote: ["wave"], retry: ["sites"] }[action] ?? []);
    if (bad) return bad;
    const refused = need("control", "patch") ?? (action === "promote" ? (r.gates.some((g) => g.verdict !== "Pass") ? need("skipGates", "skip-gates") : undefined) : undefined);
    if (refused) return refused;
    if (ENDED.includes(r.phase)) return conflict(`rollout ${r.name} is ${r.phase}: nothing of it can be changed any more`);
    const say = (what, text) => r.decisions.push({ at: iso(Date.now()), what, text, by: user });
    switch (action) {
      case "pause": r.control.paused = true; say("Paused", "Paused by a person."); break;
      case "resume":
        if (r.phase === "Paused") Object.assign(r, { phase: "Progressing", message: `Wave ${r.wave} of ${r.waves.length}: its gates are watched anew.` });
        r.control.paused = false;
        say("Resumed", "It goes on.");
        break;
      case "retry":
        for (const s of body.sites) if (r.steps.get(s) !== "failed") return invalidField("sites", `"${s}" has not failed`);
        for (const s of body.sites) r.steps.set(s, "updating");
        say("Retried", `${body.sites.join(", ")} tries again.`);
        break;
      case "promote":
        if (body.wave !== r.wave) return conflict(`wave ${body.wave} is not the current one, which is ${r.wave}; look again`);
        this.pass(r, user);
        break;
      case "abort": this.putBack(r, "Aborted", user); break;
    }
    return { json: this.detail(r) };
  }

  pass(r, user = "") {
    const w = r.waves[r.wave - 1];
    const next = r.waves[r.wave];
    w.passedAt = Date.now();
    for (const s of w.sites) if (r.steps.get(s) !== "failed") r.steps.set(s, "passed");
    r.decisions.push({ at: iso(Date.now()), what: user ? "Promoted" : "WavePassed", text: user ? `Wave ${r.wave} was promoted.` : `Wave ${r.wave} has passed.`, by: user });
    if (!next) return Object.assign(r, { phase: "Completed", endedAt: Date.now(), message: "All sites have it.", next: "" });
    r.wave++;
    next.startedAt = Date.now();
    for (const s of next.sites) if (r.steps.get(s) === "waiting") r.steps.set(s, "updating");
    return Object.assign(r, { message: `Wave ${r.wave} of ${r.waves.length} gets the change.`, nextAt: Date.now() + 15 * MINUTE });
  }

  putBack(r, what, user = "") {
    for (const [s, step] of r.steps) if (["updating", "ready", "passed", "failed"].includes(step)) r.steps.set(s, "rolledBack");
    r.decisions.push({ at: iso(Date.now()), what, text: user ? "Aborted by a person: all sites are put back." : "A gate fails: all sites are put back.", by: user }, { at: iso(Date.now()), what: "RolledBack", text: "All sites are back.", by: "" });
    Object.assign(r, { phase: "RolledBack", endedAt: Date.now(), message: "Put back: all sites have what they had.", next: "", nextAt: null });
  }

  /** What the mock's driver lets happen to the rollout of web. */
  wave(verdict) {
    const r = this.all[0];
    if (verdict === "Pass") this.pass(r);
    else this.putBack(r, "GateFailed");
  }
}
