import { describe, expect, it } from "vitest";
import type { Pod, Workload, WorkloadSite } from "../api/types";
import { arrange, arrangeSites, countsText, headlineOf, isMoving, parseWorkloadFilter, podLogPath, podState, reachOf, reasonText, shortImage, toShow, workloadPath } from "./workloads";

const counts = (c: Partial<Workload["counts"]>) => ({ sites: 0, ready: 0, progressing: 0, waiting: 0, failed: 0, rolledBack: 0, offline: 0, drifted: 0, ...c });
const workload = (name: string, w: Partial<Workload> = {}): Workload => ({ kind: "Deployment", group: "apps", name, virtualSites: [], counts: counts({}), pods: { desired: 0, ready: 0 }, reasons: [], ...w });
const site = (name: string, s: Partial<WorkloadSite> = {}): WorkloadSite => ({ site: name, online: true, state: "Ready", pods: { desired: 1, ready: 1 }, wanted: "", ...s });
const names = (l: { name: string }[]) => l.map((x) => x.name).join(" ");

describe("reasons in words", () => {
  it.each([
    ["ImagePullBackOff", "", "image can't be pulled"],
    ["OOMKilled", "", "out of memory"],
    ["Unschedulable", "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.", "pending for want of CPU and memory"],
    ["Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: none", "pending for want of nvidia.com/gpu"],
    ["Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint {a: b}", "pending: no node takes it"],
    ["Unschedulable", "pod has unbound immediate PersistentVolumeClaims", "pending for want of a volume"],
    ["Unschedulable", "", "pending: no node fits"],
    ["SomethingNobodyKnows", "", "something nobody knows"],
  ])("%s %s", (reason, message, want) => expect(reasonText(reason, message)).toBe(want));

  it("says how many sites where it is not all", () => {
    const reason = { reason: "OOMKilled", message: "", sites: 2, example: "a" };
    expect(headlineOf(workload("a", { reasons: [reason], counts: counts({ sites: 2 }) }))).toBe("out of memory");
    expect(headlineOf(workload("a", { reasons: [reason], counts: counts({ sites: 9 }) }))).toBe("out of memory on 2");
    expect(headlineOf(workload("a"))).toBe("");
  });

  it("tells a pod's state", () => {
    const pod: Pod = { name: "a", site: "s", node: "n", phase: "Running", ready: 1, containers: [], restarts: 0, createdAt: "", deleting: false, reason: "", message: "" };
    expect(podState(pod)).toEqual({ text: "running", bad: false });
    expect(podState({ ...pod, reason: "CrashLoopBackOff" })).toEqual({ text: "keeps crashing", bad: true });
    expect(podState({ ...pod, phase: "Pending", reason: "ContainerCreating" })).toEqual({ text: "starting", bad: false });
    expect(podState({ ...pod, deleting: true, reason: "Error" }).text).toBe("being deleted");
  });
});

describe("addresses", () => {
  it("say which container's log", () => {
    const of = { virtual: { tenant: "acme", namespace: "shop", name: "vk8s" }, kind: "Deployment", name: "web" };
    expect(podLogPath(of, "web-1", "app")).toBe("/workloads/shop/vk8s/Deployment/web/pods/web-1/log?tenant=acme&container=app");
    expect(podLogPath(of, "web-1", "")).toBe("/workloads/shop/vk8s/Deployment/web/pods/web-1/log?tenant=acme");
  });
});

describe("lists of workloads", () => {
  const all = [
    workload("web", { counts: counts({ sites: 5, ready: 5, offline: 1 }), images: ["registry.example/shop/web:2"], created: "2026-01-02T00:00:00Z" }),
    workload("db", { kind: "StatefulSet", counts: counts({ sites: 9, failed: 1, ready: 8 }), reasons: [{ reason: "OOMKilled", message: "", sites: 1, example: "a" }], created: "2026-01-03T00:00:00Z" }),
    workload("api", { counts: counts({ sites: 3, progressing: 3 }) }),
  ];
  const f = (search: string) => names(arrange(all, parseWorkloadFilter(search)));
  it("sorts, the most trouble first", () => {
    expect(f("")).toBe("db api web");
    expect(f("sort=name")).toBe("api db web");
    expect(f("sort=sites")).toBe("db web api");
    expect(f("sort=age")).toBe("db web api");
    expect(f("sort=nonsense")).toBe("db api web");
  });
  it("filters", () => {
    expect(f("state=Failed")).toBe("db");
    expect(f("state=Offline")).toBe("web");
    expect(f("state=nonsense")).toBe("db api web");
    expect(f("kind=StatefulSet")).toBe("db");
    expect(f("q=memory")).toBe("db");
    expect(f("q=shop+web")).toBe("web");
    expect(f("q=none")).toBe("");
  });
  it("leaves the list that it was handed as it is", () => expect(names(all)).toBe("web db api"));
});

it("sorts and filters sites", () => {
  const all = [site("a"), site("b", { state: "Failed", reason: "ErrImagePull" }), site("c", { state: "Progressing" }), site("d", { online: false }), site("e", { drifted: true })];
  const f = (q: string, state: Parameters<typeof arrangeSites>[1]["state"]) => arrangeSites(all, { q, state }).map((s) => s.site).join("");
  expect(f("", "")).toBe("bcdae");
  expect(f("", "Offline")).toBe("d");
  expect(f("", "Drifted")).toBe("e");
  expect(f("", "Ready")).toBe("dae");
  expect(f("pulled", "")).toBe("b");
});

it("counts in words, and knows when something is on its way", () => {
  expect(countsText(counts({ ready: 3, failed: 1, offline: 2 }))).toBe("3 ready, 1 failed, 2 of them offline");
  expect(countsText(counts({}))).toBe("no sites");
  expect(isMoving(counts({ waiting: 1 }))).toBe(true);
  expect(isMoving(counts({ failed: 1 }))).toBe(false);
});

it("shortens images to what tells them apart", () => {
  expect(shortImage("registry.example:5000/shop/web:2")).toBe("shop/web:2");
  expect(shortImage("library/nginx:1")).toBe("library/nginx:1");
  expect(shortImage("nginx")).toBe("nginx");
});

it("knows where objects go", () => {
  const v = { namespace: "shop", defaultVirtualSite: "shared/all-eu" };
  expect(reachOf(v, "")).toEqual(["shared/all-eu"]);
  expect(reachOf(v, "shared/lab", [{ virtualSites: ["own"] }])).toEqual(["shared/lab"]);
  expect(reachOf(v, "", [{ virtualSites: ["own", "shared/lab"] }, { virtualSites: [] }, { virtualSites: ["shop/own"] }])).toEqual(["shop/own", "shared/lab", "shared/all-eu"]);
});

it("shows what makes pods after an apply", () => {
  expect(toShow([{ kind: "ConfigMap" }, { kind: "Deployment" }])?.kind).toBe("Deployment");
  expect(toShow([{ kind: "ConfigMap" }])?.kind).toBe("ConfigMap");
  expect(toShow([])).toBeUndefined();
});

it("writes paths whose parts stay parts", () => {
  expect(workloadPath({ virtual: { tenant: "a&b", namespace: "n", name: "v" }, kind: "Deployment.apps", name: "a/b" })).toBe("/workloads/n/v/Deployment.apps/a%2Fb?tenant=a%26b");
});
