import { expect, test } from "vitest";
import { COST_COLUMNS, headroomText, roughly } from "./cost";

const room = (sites: number, moreSites: number | null) => ({ headroom: { sites, moreSites, first: "" as const, resources: [] } });

test("an estimate has two digits", () => {
  expect([0, 7, 99, 100, 907, 12_345].map(roughly)).toEqual([0, 7, 99, 100, 900, 12_000]);
});

test("headroom in a sentence", () => {
  expect(headroomText(room(60, 907))).toBe("About 900 more sites like its 60");
  expect(headroomText(room(1, 1))).toBe("About 1 more site like its one");
  expect(headroomText(room(60, 0))).toBe("No more sites like its 60");
  expect(headroomText(room(3, null))).toBe("How many more sites like its 3 it carries is not known yet");
  expect(headroomText(room(0, null))).toBe("No sites yet");
});

test("figures with their units", () => {
  const u = { series: 1234, samplesPerSecond: 66.7, wireBytesPerSecond: 2048, rawBytesPerSecond: 1, pushesPerSecond: 1, refusedPerSecond: 0, logLinesPerSecond: 0.5, logBytesPerSecond: 100, cpuCores: 0.00123, memoryBytes: 3 * 2 ** 20 };
  expect(COST_COLUMNS.map((c) => c.value(u))).toEqual(["1,234", "66.7", "2 KiB", "0", "0.5", "100 B", "0.0012", "3 MiB"]);
});
