// What runs on the invented sites, for the mock server: the shop of acme, a virtual
// Kubernetes without workloads, and one that is not ready.

import { checkBody, conflict, forbidden, invalidField, notFound } from "./check.mjs";

const HOUR = 3600_000;
const KINDS = {
  Deployment: ["apps", "v1"], StatefulSet: ["apps", "v1"], CronJob: ["batch", "v1"], Service: ["", "v1"], ConfigMap: ["", "v1"], VirtualMachine: ["kubevirt.io", "v1"],
};
const hash = (s) => [...s].reduce((h, c) => (h * 31 + c.charCodeAt(0)) >>> 0, 7);
const letters = (n) => Array.from({ length: 5 }, (_, i) => "bcdfghjklmnpqrstvwxz2456789"[(n >>> (i * 5)) % 27]).join("");
const FAULTS = {
  ImagePullBackOff: 'Back-off pulling image "registry.example/shop/label-printer:missing"',
  OOMKilled: "back-off 5m0s restarting failed container=api",
  Unschedulable: "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
  ProgressDeadlineExceeded: "not ready after 10m0s; the last good one is in effect again",
};

export class MockWorkloads {
  constructor(fleet) {
    this.fleet = fleet;
    this.rights = { deploy: true, deletePods: true, readLogs: true };
    this.gone = new Set();
    this.born = new Map(); // pods that came in place of deleted ones
    this.logs = new Set();
    this.virtual = ["acme/shop", "acme/lab", "globex/shop"].map((k) => {
      const [tenant, namespace] = k.split("/");
      return { tenant, namespace, name: "vk8s", defaultVirtualSite: "shared/all-eu", url: `/api/vK8s/namespaces/${tenant}-${namespace}/vk8s`, createdAt: new Date(Date.now() - 40 * 24 * HOUR).toISOString(), fault: tenant === "globex" ? "there is no virtual site shared/all-eu" : "", items: [] };
    });
    const shop = this.virtual[0];
    const add = (kind, name, virtualSites, o = {}) => shop.items.push({ kind, name, virtualSites, replicas: 0, at: Date.now() - (hash(name) % 900) * HOUR, ...o });
    add("Deployment", "web", ["shared/all-eu"], { images: ["registry.example/shop/web:2.4.1"], replicas: 3, fault: (h) => (h % 23 === 0 ? "Unschedulable" : "") });
    add("Deployment", "checkout", ["shared/all-eu", "shared/americas"], { images: ["registry.example/shop/checkout:1.8.0", "registry.example/mesh/proxy:3.1"], replicas: 2, fault: (h) => (h % 19 === 0 ? "OOMKilled" : h % 13 === 0 ? "Progressing" : "") });
    add("Deployment", "label-printer", ["shared/canary"], { images: ["registry.example/shop/label-printer:missing"], replicas: 1, fault: () => "ImagePullBackOff" });
    add("StatefulSet", "basket-db", ["shared/old-hardware"], { images: ["registry.example/db/postgres:16.4"], replicas: 1, fault: (h) => (h % 7 === 0 ? "ProgressDeadlineExceeded" : "") });
    add("VirtualMachine", "till-terminal", ["shared/canary"], { images: [], replicas: 1, fault: () => "" });
    add("CronJob", "nightly-report", ["shared/all-eu"], { images: ["registry.example/shop/report:5"], fault: () => "" });
    add("Service", "web", ["shared/all-eu"], { fault: () => "" });
    add("ConfigMap", "settings", ["shared/all-eu"], { fault: (h) => (h % 31 === 0 ? "Waiting" : "") });
  }

  members(tenant, refs) {
    return [...this.fleet.sites.values()].filter((s) => s.tenant === tenant && refs.some((r) => s.view.virtualSites.includes(r))).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  sitesOf(v, w) {
    return this.members(v.tenant, w.virtualSites).map((s) => {
      const h = hash(w.name + s.name);
      const fault = s.phase === "Approved" ? "Waiting" : w.fault(h);
      const online = !s.faults.has("uplink-down") && s.phase === "Online";
      const state = { "": "Ready", Progressing: "Progressing", Waiting: "Waiting", ProgressDeadlineExceeded: "RolledBack" }[fault] ?? (fault === "Unschedulable" ? "Progressing" : "Failed");
      const ready = state === "Ready" || state === "RolledBack" ? w.replicas : fault === "ImagePullBackOff" || state === "Waiting" ? 0 : Math.max(0, w.replicas - 1);
      return {
        site: s.name, online, state, ...(FAULTS[fault] ? { reason: fault, message: FAULTS[fault] } : {}), since: new Date(w.at + (h % 50) * 60_000).toISOString(), pods: { desired: w.replicas, ready },
        wanted: `sha256:${"a".repeat(64)}`, ...(state === "Waiting" ? {} : { digest: `sha256:${(state === "RolledBack" ? "b" : "a").repeat(64)}` }), ...(h % 29 === 0 ? { drifted: true } : {}),
      };
    });
  }

  view(v, w, only) {
    const all = this.sitesOf(v, w);
    const sites = only ? all.filter((s) => s.site === only) : all;
    const count = (state) => sites.filter((s) => s.state === state).length;
    const reasons = new Map();
    for (const s of sites) if (s.reason) reasons.set(s.reason, [...(reasons.get(s.reason) ?? []), s]);
    const [group, version] = KINDS[w.kind];
    return {
      sites,
      view: {
        group, version, kind: w.kind, name: w.name, created: new Date(w.at).toISOString(), ...(w.images ? { images: w.images } : {}), virtualSites: w.virtualSites,
        counts: { sites: sites.length, ready: count("Ready"), progressing: count("Progressing"), waiting: count("Waiting"), failed: count("Failed"), rolledBack: count("RolledBack"), offline: sites.filter((s) => !s.online).length, drifted: sites.filter((s) => s.drifted).length },
        pods: { desired: sites.reduce((n, s) => n + s.pods.desired, 0), ready: sites.reduce((n, s) => n + s.pods.ready, 0) },
        reasons: [...reasons].map(([reason, l]) => ({ reason, message: l[0].message, sites: l.length, example: l[0].site })).sort((a, b) => b.sites - a.sites),
      },
    };
  }

  summary({ items, ...v }) {
    const sites = this.members(v.tenant, [v.defaultVirtualSite]);
    return { ...v, sites: sites.length, online: sites.filter((s) => s.phase === "Online").length, objects: items.length };
  }

  kubeconfig(res, v) {
    const as = `${v.tenant}-${v.namespace}-${v.name}`;
    res.writeHead(200, { "Content-Type": "application/yaml", "Content-Disposition": `attachment; filename="${as}.kubeconfig"` });
    res.end(`# Put the token that you log in to the console with into a file muster.token beside this one.\napiVersion: v1\nkind: Config\ncurrent-context: ${as}\n`);
    return undefined;
  }

  list(tenants) {
    return { json: { virtualKubernetes: this.virtual.filter((v) => tenants.includes(v.tenant)).map((v) => this.summary(v)).sort((a, b) => (`${a.tenant}-${a.namespace}` < `${b.tenant}-${b.namespace}` ? -1 : 1)) } };
  }

  with(m, q, tenants, f) {
    const hits = this.virtual.filter((v) => tenants.includes(v.tenant) && (!q.get("tenant") || v.tenant === q.get("tenant")) && v.namespace === m[1] && v.name === m[2]);
    if (hits.length === 0) return notFound(`there is no virtual Kubernetes ${m[1]}/${m[2]} that you may read`);
    if (hits.length > 1) return { problem: { ...conflict(`several tenants have a virtual Kubernetes ${m[1]}/${m[2]}: name one with the parameter tenant`).problem, tenants: hits.map((v) => v.tenant) } };
    return f(hits[0]);
  }

  withWorkload(m, q, tenants, f) {
    return this.with(m, q, tenants, (v) => {
      const w = v.items.find((x) => [x.kind, KINDS[x.kind][0]].filter(Boolean).join(".") === m[3] && x.name === decodeURIComponent(m[4]));
      return w ? f(v, w) : notFound(`there is no ${m[3]} ${m[4]}`);
    });
  }

  detail(v, w) {
    const { view, sites } = this.view(v, w);
    return { json: { ...view, sites } };
  }

  object(v, w) {
    const [group, version] = KINDS[w.kind];
    const annotations = { "ves.io/virtual-sites": w.virtualSites.join(","), "ves.io/workload-flavor": "medium" };
    const spec = w.replicas ? `spec:\n  replicas: ${w.replicas}\n  selector:\n    matchLabels:\n      app: ${w.name}\n  template:\n    metadata:\n      labels:\n        app: ${w.name}\n    spec:\n      containers:\n${w.images.map((image, i) => `      - image: ${image}\n        name: ${i ? "proxy" : "app"}\n`).join("")}` : "data:\n  currency: EUR\n";
    return { json: { yaml: `apiVersion: ${group ? `${group}/` : ""}${version}\nkind: ${w.kind}\nmetadata:\n  annotations:\n    ves.io/virtual-sites: ${annotations["ves.io/virtual-sites"]}\n    ves.io/workload-flavor: medium\n  labels:\n    app: ${w.name}\n  name: ${w.name}\n  namespace: ${v.tenant}-${v.namespace}\n${spec}`, annotations, labels: { app: w.name }, resourceVersion: "812" } };
  }

  allPods(v, w) {
    return this.sitesOf(v, w).flatMap((s) =>
      Array.from({ length: s.pods.desired }, (_, i) => {
        const own = `${w.name}-6f9c8d7b5-${letters(hash(w.name + s.site + i))}`;
        const name = this.born.get(own) ?? own;
        const bad = i >= s.pods.ready && s.reason !== "ProgressDeadlineExceeded";
        const reason = this.born.has(own) ? "ContainerCreating" : bad ? (s.reason ?? "") : "";
        return { name, own, site: s.site, node: reason === "Unschedulable" ? "" : `${s.site}-node-${1 + (i % 2)}`, phase: bad && s.reason !== "OOMKilled" ? "Pending" : "Running", ready: bad ? 0 : Math.max(1, w.images.length), containers: w.images.length > 1 ? ["app", "proxy"] : ["app"], restarts: s.reason === "OOMKilled" && bad ? 17 : 0, createdAt: s.since, deleting: false, reason, message: bad ? (s.message ?? "") : "" };
      }),
    );
  }

  pods(v, w, q) {
    const all = this.allPods(v, w).filter((p) => !q.get("site") || p.site === q.get("site"));
    const limit = Number(q.get("limit") ?? 100);
    const from = Number(q.get("cursor") || 0);
    return { json: { pods: all.slice(from, from + limit).map(({ own: _, ...p }) => p), ...(from + limit < all.length ? { nextCursor: String(from + limit) } : {}) } };
  }

  findPod(v, name) {
    return v.items.filter((w) => w.replicas).flatMap((w) => this.allPods(v, w)).find((p) => p.name === name);
  }

  deletePod(v, name) {
    if (!this.rights.deletePods) return forbidden(`delete the pod: pods "${name}" is forbidden: User "${"ada@example.com"}" cannot delete resource "pods" in API group "" in the namespace "${v.tenant}-${v.namespace}"`);
    const pod = this.findPod(v, name);
    if (!pod) return notFound(`delete the pod: pods "${name}" not found`);
    this.born.set(pod.own, `${name.slice(0, -5)}${letters(hash(name))}`);
    return { status: 204 };
  }

  onSite(tenant, site) {
    return { json: { tenant, site, virtualKubernetes: this.virtual.filter((v) => v.tenant === tenant).map((v) => ({ namespace: v.namespace, name: v.name, items: v.items.map((w) => this.view(v, w, site)).filter((x) => x.sites.length > 0).map((x) => ({ ...x.view, sites: x.sites })) })).filter((v) => v.items.length > 0) } };
  }

  log(req, res, v, name, q) {
    const pod = this.findPod(v, name);
    if (!this.rights.readLogs) return forbidden(`follow the pod's log: pods "${name}" is forbidden: you cannot get resource "pods/log"`);
    if (!pod) return notFound(`follow the pod's log: pods "${name}" not found`);
    if (this.fleet.sites.get(`${v.tenant}/${pod.site}`)?.faults.has("uplink-down")) return { problem: { type: "urn:muster:problem:unavailable", title: "Service Unavailable", status: 503, detail: `follow the pod's log: site ${pod.site} is not connected` } };
    if (pod.containers.length > 1 && !q.get("container")) return { problem: { type: "urn:muster:problem:invalid", title: "Bad Request", status: 400, detail: `follow the pod's log: a container name must be specified for pod ${name}, choose one of: [${pod.containers.join(" ")}]` } };
    res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const begin = Date.now() - 60_000;
    const says = ["listening on :8080", "GET /cart 200 in 12 ms", "GET /cart 200 in 9 ms", "POST /pay 502: upstream connect error or disconnect/reset before headers", "GET /healthz 200", '{"level":"warn","msg":"slow query","ms":1840}'];
    const lines = Array.from({ length: 60 }, (_, i) => ({ time: new Date(begin + i * 1000).toISOString(), text: says[i % says.length] }));
    const send = (l) => res.write(`event: lines\nid: ${l.at(-1).time}\ndata: ${JSON.stringify({ lines: l })}\n\n`);
    const last = req.headers["last-event-id"];
    send(lines.filter((l) => !last || l.time > last).concat(last ? [{ time: new Date().toISOString(), text: "and on it goes" }] : []));
    if (q.get("previous")) {
      res.write("event: end\ndata: {}\n\n");
      res.end();
      return undefined;
    }
    const entry = { res, pod: name, send };
    this.logs.add(entry);
    req.on("close", () => this.logs.delete(entry));
    return undefined;
  }

  say(text) {
    for (const l of this.logs) l.send([{ time: new Date().toISOString(), text }]);
  }

  end() {
    for (const l of this.logs) {
      l.res.write("event: end\ndata: {}\n\n");
      l.res.end();
    }
  }

  apply(v, body) {
    const bad = checkBody(body, ["yaml", "virtualSite", "dryRun", "force"]);
    if (bad) return bad;
    const docs = String(body.yaml ?? "").split(/^---.*$/m).map((t) => t.replace(/^\s*#.*$/gm, "").trim()).filter(Boolean);
    if (docs.length === 0) return invalidField("yaml", "has no object; paste at least one, such as a Deployment");
    const get = (t, re) => re.exec(t)?.[1]?.trim().replace(/^["']|["']$/g, "") ?? "";
    const objects = docs.map((text, i) => {
      const [kind, name, api] = [get(text, /^kind:(.*)$/m), get(text, /^ {2}name:(.*)$/m), get(text, /^apiVersion:(.*)$/m)];
      const [group, version] = api.includes("/") ? api.split("/") : ["", api];
      const own = get(text, /ves\.io\/virtual-sites:(.*)$/m);
      const refuse = (field, detail, c = false) => ({ detail: `${field}: ${detail}`, conflict: c, errors: [{ field, detail }] });
      const error = !KINDS[kind] ? refuse("kind", `${kind || "none"} of ${api} is not served here; \`kubectl api-resources\` lists what is`)
        : !name ? refuse("metadata.name", "is missing, or no name: each object needs one")
        : /replicas: *[a-z"]/.test(text) ? refuse("spec.replicas", 'Invalid value: "many": expected numeric')
        : /workload-flavor: *huge/.test(text) ? refuse("metadata.annotations[ves.io/workload-flavor]", '"huge": want one of tiny, medium, large')
        : name === "taken" && !body.force ? { detail: 'Apply failed with 1 conflict: conflict with "helm": .spec.replicas', conflict: true, errors: [{ field: ".spec.replicas", detail: 'conflict with "helm"' }] } : null;
      const virtualSites = (body.virtualSite || own).split(",").map((s) => s.trim()).filter(Boolean);
      return { text, o: { document: i + 1, group, version, kind, name, change: error ? "" : v.items.some((w) => w.kind === kind && w.name === name) ? "change" : "create", virtualSites, warnings: /extensions/.test(text) ? ["extensions is deprecated"] : [], error } };
    });
    const applied = !body.dryRun && objects.every((x) => !x.o.error);
    if (applied) {
      for (const { o, text } of objects) {
        v.items = v.items.filter((w) => w.kind !== o.kind || w.name !== o.name);
        const image = get(text, /image:(.*)$/m);
        v.items.push({ kind: o.kind, name: o.name, virtualSites: o.virtualSites.length ? o.virtualSites : [v.defaultVirtualSite], at: Date.now(), images: image ? [image] : undefined, replicas: o.kind === "Deployment" ? Number(get(text, /replicas:(.*)$/m)) || 1 : 0, fault: (h) => (h % 3 === 0 ? "" : "Progressing") });
      }
    }
    return { json: { applied, objects: objects.map((x) => x.o) } };
  }
}
