import { describe, expect, it } from "vitest";
import type { Matrix } from "../api/types";
import { betweenOf, gapsOf, hasBetween, withBetween } from "./between";
import { betweenText, type Line, readingAt, scaleOf, textOf } from "./chart";
import { RANGES, summarize } from "./history";
import { withoutName } from "./promql";

type Values = [number, string][];
const matrix = (...series: [Record<string, string>, Values][]): Matrix => ({ status: "success", data: { resultType: "matrix", result: series.map(([metric, values]) => ({ metric, values })) } });
const site = { site: "x" };
const STEP = 14_400;
/** Five points of a disk that is 40 % full, and 97 % for an hour before the third; the fourth step lacks half of its data. */
const answer = {
  start: 0, end: 4 * STEP, step: STEP,
  least: matrix([site, [[0, "39"], [STEP, "38"], [2 * STEP, "38"], [3 * STEP, "40"], [4 * STEP, "40"]]]),
  largest: matrix([site, [[0, "41"], [STEP, "41"], [2 * STEP, "97"], [3 * STEP, "41"], [4 * STEP, "40"]]]),
  coverage: matrix([site, [[0, "1"], [STEP, "1"], [2 * STEP, "0.996"], [3 * STEP, "0.5"], [4 * STEP, "1"]]]),
};
const between = betweenOf(answer, (m) => m.site).get("x")!;
const line: Line = { name: "x", samples: [0, 1, 2, 3, 4].map((i) => [i * STEP, 40] as const), between };
const say = (v: number) => `${v}%`;

describe("what is between the points of a chart", () => {
  it("is asked for where the points are far apart", () => {
    expect(RANGES.filter(hasBetween).map((r) => r.id)).toEqual(["6h", "24h", "7d", "30d"]);
  });
  it("is a column for each step of the chart", () => {
    expect(between.map((b) => [b.from / STEP, b.to / STEP, b.least, b.largest, b.coverage])).toEqual([[0, 1, 38, 41, 1], [1, 2, 38, 97, 0.996], [2, 3, 40, 41, 0.5], [3, 4, 40, 40, 1]]);
  });
  it("brings a spike into the picture, the summary and the text", () => {
    expect(scaleOf([line])[1]).toBeGreaterThan(97);
    expect(scaleOf([{ name: "x", samples: line.samples }])[1]).toBe(50);
    expect(summarize(line.samples, between)).toMatchObject({ last: 40, min: 38, minAt: STEP, max: 97 });
    expect(textOf("Disk", [line], say)).toMatch(/^Disk: now 40%, lowest 38% at .*, highest 97%; with gaps$/);
  });
  it("shows gaps that no point falls into, and no sample that was late", () => {
    expect(gapsOf([line])).toEqual([{ from: 2 * STEP, to: 3 * STEP, share: 0.5 }]);
    // Another line has data then, so there is a gap in this one alone.
    expect(gapsOf([line, { ...line, between: between.map((b) => ({ ...b, coverage: 1 })) }])).toEqual([]);
  });
  it("is told of a moment within the step, with the point that ends it", () => {
    const reading = readingAt(line, 1.1 * STEP)!;
    expect([reading.t, reading.v]).toEqual([2 * STEP, 40]);
    expect(betweenText(reading, say)).toBe("38% to 97%");
    expect(betweenText(readingAt(line, 2.5 * STEP)!, say)).toBe("40% to 41%, no data for 50 % of it");
    expect(betweenText(readingAt(line, 3.5 * STEP)!, say)).toBe("");
    expect(readingAt({ name: "x", samples: line.samples }, 1.1 * STEP)).toEqual({ t: STEP, v: 40 });
  });
  it("begins with the first data of a line, and goes on without any to the end", () => {
    const late = betweenOf({ ...answer, least: matrix([site, [[2 * STEP, "1"]]]), largest: matrix([site, [[2 * STEP, "2"]]]), coverage: matrix([site, [[2 * STEP, "0.2"]]]) }, (m) => m.site).get("x")!;
    expect(late.map((b) => [b.to / STEP, b.least, b.largest, b.coverage])).toEqual([[2, 1, 2, 1], [3, null, null, 0], [4, null, null, 0]]);
    expect(betweenText(readingAt({ name: "x", samples: [], between: late }, 2.5 * STEP)!, say)).toBe("no data");
  });
  it("gives a line to what is only there between the points, and finds the others without the name of the metric", () => {
    const lines = [{ name: 'up{site="x"}', key: withoutName({ __name__: "up", site: "x" }), samples: line.samples }];
    const out = withBetween(lines, new Map([['{site="x"}', between], ['{site="y"}', between]]));
    expect(out.map((l) => [l.name, l.between?.length, l.samples.filter(([, v]) => v !== null).length])).toEqual([['up{site="x"}', 4, 5], ['{site="y"}', 4, 0]]);
    expect(summarize(out[1]!.samples, out[1]!.between)).toMatchObject({ last: null, max: 97 });
    expect(textOf("Disk", [out[1]!], say)).toMatch(/^Disk: lowest 38% at .*, highest 97%; with gaps$/);
    expect(withBetween(lines, undefined)).toEqual(lines);
  });
  it("leaves out series that are of no line, and puts those of one line together", () => {
    const two = { ...answer, largest: matrix([{ site: "x", region: "a" }, [[STEP, "5"]]], [{ site: "x", region: "b" }, [[STEP, "7"], [2 * STEP, "NaN"]]], [{ site: "y" }, [[STEP, "99"]]]), least: matrix(), coverage: matrix([site, [[0, "1"], [STEP, "1"]]]) };
    const of = betweenOf(two, (m) => (m.site === "y" ? undefined : m.site));
    expect([...of.keys()]).toEqual(["x"]);
    expect(of.get("x")!.map((b) => b.largest)).toEqual([7, null, null, null]);
  });
});
