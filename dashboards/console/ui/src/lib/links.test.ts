import { describe, expect, it } from "vitest";
import type { Matrix } from "../api/types";
import { summarize } from "./history";
import { chartLines, chartsOf, colourOf, COLUMNS, formatMillis, formatRate, linkPath, serviceChartsOf, thicknessOf } from "./links";

const counts = (green: number, orange: number, red: number, grey = 0) => ({ green, orange, red, grey });

describe("links", () => {
  it("has bytes on the axes of which the values are bytes", () => {
    const all = [...chartsOf("x", 120, 30), ...serviceChartsOf("x", 120, 30)];
    expect(all.some((c) => c.bytes)).toBe(true);
    for (const c of all) expect([c.id, c.bytes ?? false]).toEqual([c.id, /iB\b/.test(c.format(2 ** 20))]);
  });
  it("have the colour of their worst tenth", () => {
    expect(colourOf(counts(95, 0, 5))).toBe("green");
    expect(colourOf(counts(90, 4, 6))).toBe("orange");
    expect(colourOf(counts(90, 0, 10))).toBe("red");
    expect(colourOf(counts(0, 0, 0, 7))).toBe("grey");
    expect(colourOf(counts(1, 0, 0, 99))).toBe("green");
  });
  it("are drawn thicker the more there are, within bounds", () => {
    const all = [0, 1, 10, 100, 1000, 10_000, 1e6].map(thicknessOf);
    expect(all).toEqual([...all].sort((a, b) => a - b));
    expect(all[0]).toBe(2);
    expect(all.at(-1)).toBe(14);
  });
  it("read in units, unknown as a dash", () => {
    expect([formatMillis(12.3), formatMillis(null), formatRate(2048), formatRate(null)]).toEqual(["12.3 ms", "–", "2 KiB/s", "–"]);
    const none = { tenant: "a", site: "b", regional: "", region: "", phase: "Approved", colour: "grey" as const, connectivity: null, reason: "", window: 120, roundTrip: null, loss: null, sent: null, received: null, handshake: null, reconnects: null, requests: null, errors: null };
    expect(new Set(COLUMNS.map((c) => c.text(none)))).toEqual(new Set(["–"]));
  });
  it("ask about one site, whatever its name", () => {
    for (const c of [...chartsOf('x"y', 120, 30), ...serviceChartsOf('x"y', 120, 30)]) {
      expect(c.query).toContain('site="x\\"y"');
      expect(c.query.split("(").length).toBe(c.query.split(")").length);
    }
    const windows = (window: number, step: number) => new Set([...chartsOf("x", window, step), ...serviceChartsOf("x", window, step)].flatMap((c) => c.query.match(/\[\d+s\]/g) ?? []));
    expect(windows(120, 30)).toEqual(new Set(["[120s]"]));
    expect(windows(120, 720)).toEqual(new Set(["[720s]"]));
    // A site that is scraped every 5 minutes: its gauges are looked for as far back, but not over the step of a long time.
    expect(windows(1200, 30)).toEqual(new Set(["[1200s]"]));
    expect(windows(1200, 3600)).toEqual(new Set(["[1200s]", "[3600s]"]));
    expect(chartsOf("x", 1200, 30)[0]!.query).toContain("last_over_time(");
    expect(linkPath({ tenant: "a b", name: "c/d" }, "6h")).toBe("/connectivity/c%2Fd?tenant=a+b&range=6h");
  });
});

describe("the lines of a chart", () => {
  const chart = (sparse: boolean) => ({ id: "x", title: "Errors", doc: "", query: "q", label: "what", format: String, none: "", sparse });
  const matrix = (...series: [string, [number, string][]][]): Matrix => ({ status: "success", data: { resultType: "matrix", result: series.map(([what, values]) => ({ metric: (what ? { what } : {}) as Record<string, string>, values })) } });
  const points = { start: 0, end: 600, matrix: matrix(["push", [[0, "0"], [300, "0"], [600, "0"]]], ["pull", [[0, "0"], [300, "0"], [600, "0"]]]) };
  const between = {
    start: 0, end: 600, step: 300,
    least: matrix(["push", [[300, "0"], [600, "0"]]], ["pull", [[300, "0"]]], ["", [[600, "2"]]]),
    largest: matrix(["push", [[300, "9"], [600, "0"]]], ["pull", [[300, "0"]]], ["", [[600, "2"]]]),
    coverage: matrix(["push", [[300, "1"], [600, "1"]]], ["pull", [[300, "0.5"]]], ["", [[600, "0.1"]]]),
  };
  it("of what goes wrong are those that were more than zero, be it between two points", () => {
    expect(chartLines(chart(true), points, 300, undefined)).toEqual([]);
    expect(chartLines(chart(true), points, 300, between).map((l) => [l.name, summarize(l.samples, l.between)?.max])).toEqual([["Errors", 2], ["push", 9]]);
  });
  it("that come and go with what is wrong have no gaps, others do", () => {
    const covered = (sparse: boolean) => chartLines(chart(sparse), points, 300, between).map((l) => [l.name, l.between?.every((b) => b.coverage === 1)]);
    expect(covered(true)).toEqual([["Errors", true], ["push", true]]);
    expect(covered(false)).toEqual([["Errors", true], ["pull", false], ["push", true]]);
  });
  it("have names of their own", () => {
    const names = chartLines(chart(false), { ...points, matrix: matrix(["", [[0, "1"]]], ["push", [[0, "1"]]]) }, 300, between).map((l) => l.name);
    expect(names).toEqual([...new Set(names)]);
  });
});
