import { afterEach, describe, expect, it } from "vitest";
import type { TimelineEvent } from "../api/types";
import { bandsOf, BYTE_STEPS, dashOf, firingBands, scaleOf, textOf, unionOf } from "./chart";
import { formatValue } from "./format";
import { marksOf } from "./marks";
import { completionOf, metricsOf, placeOf, seriesName, unitOf, wayOut } from "./promql";
import { formatAbsolute, formatClock, formatDay, formatDayClock, zoned } from "./time";
import { setZone } from "./zone";

describe("charts", () => {
  it("puts lines of other times beside each other", () => {
    expect(unionOf([{ name: "a", samples: [[1, 5], [2, null]] }, { name: "b", samples: [[2, 7], [3, 8]] }])).toEqual([[1, 2, 3], [[5, null, null], [null, 7, 8]]]);
  });
  it("has room above and below, and a floor of 0", () => {
    expect(scaleOf([{ name: "a", samples: [[1, 0], [2, 100]] }])).toEqual([0, 106]);
    expect(scaleOf([{ name: "a", samples: [[1, 50], [2, null]] }], [70, 95])[1]).toBeGreaterThan(95);
    expect(scaleOf([])).toEqual([0, 1]);
    expect(scaleOf([{ name: "a", samples: [[1, 8]] }])).toEqual([0, 10]);
  });
  it("steps bytes by what reads round", () => {
    for (const step of BYTE_STEPS) expect(formatValue(step, "bytes")).toMatch(step >= 1 ? /^\d{1,3}( B| [KMGTP]iB)$/ : /^0(\.0{0,2}[125])? B$/);
    for (const [i, step] of BYTE_STEPS.entries()) if (i > 0) expect(step / BYTE_STEPS[i - 1]!).toBeLessThanOrEqual(2.5);
  });
  it("knows which side of a threshold is good", () => {
    expect(bandsOf(70, 95).map((b) => b.tone)).toEqual(["good", "warn", "bad"]);
    expect(bandsOf(25, 5)).toEqual([{ from: -Infinity, to: 5, tone: "bad" }, { from: 5, to: 25, tone: "warn" }, { from: 25, to: Infinity, tone: "good" }]);
    expect(firingBands([{ op: ">", value: 5 }, { op: "<=", value: 9 }])).toEqual([{ from: 5, to: 9, tone: "bad" }]);
    expect(firingBands([{ op: "==", value: 5 }])).toEqual([]);
    expect(firingBands([])).toEqual([]);
  });
  it("tells two lines apart beyond its colours", () => {
    expect(dashOf(0, 8)).toEqual([]);
    expect(dashOf(8, 8)).not.toEqual([]);
    expect(dashOf(16, 8)).not.toEqual(dashOf(8, 8));
  });
  it("says what it shows", () => {
    const say = (v: number) => `${v}%`;
    expect(textOf("CPU", [{ name: "x", samples: [] }], say)).toBe("CPU: no samples in this time");
    expect(textOf("CPU", [{ name: "x", samples: [[0, 5], [60, null], [120, 3]] }], say)).toMatch(/^CPU: now 3%, lowest 3% at .*, highest 5%; with gaps$/);
    expect(textOf("CPU", [{ name: "a", samples: [[0, 5]] }, { name: "b", samples: [] }], say)).toMatch(/^CPU: a first 5%, now 5%, .*; b no samples$/);
  });
  it("marks a maintenance from its begin to its end", () => {
    const e = (time: string, kind: string, more: object) => ({ id: time, time, kind, severity: "info", tenant: "a", text: kind, ...more }) as TimelineEvent;
    const [began, ended] = [{ site: "x", after: "maintenance" }, { site: "x", before: "maintenance", after: "ended" }];
    const clock = (s: string) => Date.parse(`2026-01-01T${s}Z`) / 1000;
    const marks = (...events: TimelineEvent[]) => marksOf(events, clock("00:30:00"), clock("03:00:00")).map((m) => [m.tone, m.t, m.until]);
    expect(marks(e("2026-01-01T02:00:00Z", "maintenance", ended), e("2026-01-01T01:30:00Z", "alert", { severity: "critical" }), e("2026-01-01T01:00:00Z", "maintenance", began))).toEqual([
      ["info", clock("01:00:00"), clock("02:00:00")], ["bad", clock("01:30:00"), undefined], ["info", clock("02:00:00"), undefined],
    ]);
    // Under way, it goes on to the end of the chart; begun before the chart, it is there from its beginning.
    expect(marks(e("2026-01-01T01:00:00Z", "maintenance", began))).toEqual([["info", clock("01:00:00"), clock("03:00:00")]]);
    expect(marks(e("2026-01-01T01:00:00Z", "maintenance", ended))).toEqual([["info", clock("00:30:00"), clock("01:00:00")], ["info", clock("01:00:00"), undefined]]);
  });
});

describe("PromQL", () => {
  const at = (s: string) => {
    const p = placeOf(s.replace("|", ""), s.indexOf("|"));
    return p && [p.kind, p.word, p.metric, p.label];
  };
  it.each([
    ["no|", ["metric", "no", "", ""]],
    ["sum(rate(node_c|", ["metric", "node_c", "", ""]],
    ["up{|", ["label", "", "up", ""]],
    ['up{job="x", si|', ["label", "si", "up", ""]],
    ['up{job="ku|', ["value", "ku", "up", "job"]],
    ['up{job=~"a|b', ["value", "a", "up", "job"]],
    ["sum by (si|", ["label", "si", "", ""]],
    ["sum by (site, no|) (up)", ["label", "no", "up", ""]],
    ['{job="x"} |', undefined],
    ['up{job="x{y"} + no|', ["metric", "no", "", ""]],
    ["rate(x[5m|", undefined],
    ['up{job="a"|', undefined],
  ])("%s", (text, want) => expect(at(text)).toEqual(want));
  it("completes with the store's names and with functions", () => {
    const p = placeOf("su", 2)!;
    const c = completionOf(p, ["su", "suite_total"], true)!;
    expect([c.from, c.to, c.options.map((o) => o.text)]).toEqual([0, 2, ["suite_total", "sum", "sum_over_time"]]);
    expect(c.options.at(-1)!.note).toContain("more");
    // The names that were found for "node_", while those for "node_me" are being asked for.
    expect(completionOf(placeOf("node_me", 7)!, ["node_cpu_seconds_total", "a_node_meter", "node_memory_MemFree_bytes"], false)!.options.map((o) => o.text)).toEqual(["node_memory_MemFree_bytes", "a_node_meter"]);
    expect(completionOf(placeOf('up{a="', 6)!, ['q"uote'], false)!.options[0]!.text).toBe('q\\"uote');
  });
  it("finds names, units and advice", () => {
    expect(metricsOf('sum by (site) (rate(a_total{x="y_z"}[5m])) / on (site) b or vector(1)')).toEqual(["a_total", "b"]);
    expect(unitOf('node_memory_MemAvailable_bytes{site="x"}')).toBe("bytes");
    expect(unitOf("rate(node_network_receive_bytes_total[5m])")).toBe("B/s");
    expect(unitOf("a_bytes / b_bytes")).toBe("");
    expect(seriesName({ __name__: "up", tenant: "acme", site: "x", job: "y" })).toBe('up{job="y", site="x"}');
    expect(seriesName({})).toBe("{}");
    expect(wayOut("query processing would load too many samples into memory")).toContain("Narrow");
    expect(wayOut("something else")).toBe("");
  });
});

describe("one zone", () => {
  const store = new Map<string, string>();
  Object.assign(globalThis, { localStorage: { getItem: (k: string) => store.get(k) ?? null, setItem: (k: string, v: string) => store.set(k, v), removeItem: (k: string) => store.delete(k) } });
  afterEach(() => setZone("local"));
  it("has 24 hours and says its zone", () => {
    setZone("UTC");
    const t = Date.parse("2026-03-04T17:05:09.007Z");
    expect(formatClock(t)).toBe("17:05:09");
    expect(formatAbsolute(t)).toMatch(/^4 Mar 2026,? 17:05:09 UTC$/);
    expect(formatDayClock(t)).toBe("03-04 17:05:09.007");
    expect(formatDay(t, Date.parse("2026-03-05T00:00:01Z"))).toBe("Yesterday");
    expect(formatDay(t, Date.parse("2026-03-04T23:59:59Z"))).toBe("Today");
    expect(formatDay(Date.parse("2026-02-01T00:00:00Z"), t)).toContain("February 2026");
  });
  it("finds the moments in a server's text, and nothing else", () => {
    setZone("UTC");
    expect(zoned("silenced until 2026-03-04 17:05 UTC: x, and until 2026-03-05 00:00 UTC (y)")).toMatch(/^silenced until 4 Mar 2026,? 17:05 UTC: x, and until 5 Mar 2026,? 00:00 UTC \(y\)$/);
    for (const other of ["at 17:05 UTC", "2026-03-04 25:05 UTC", "2026-13-04 17:05 UTC", "2026-03-04 17:05 CET", "12026-03-04 17:05 UTC", "2026-03-04T17:05:00Z"]) expect(zoned(other)).toBe(other);
  });
});
