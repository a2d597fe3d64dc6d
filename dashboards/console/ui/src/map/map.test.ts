import { describe, expect, it } from "vitest";
import type { SiteMap } from "../api/types";
import { staysTogether } from "./marks";
import { HEALTH, ofNumber, ofTexts } from "./paint";
import { spotsOf } from "./spots";
import { unroll, unrolled } from "./unroll";
import { boundsOf, fit, leastScale, MAX_SCALE } from "./view";
import { project, WORLD } from "./world";

const at = (latitude: number, longitude: number) => project(latitude, longitude);
const anchorage = at(61.2, -149.9);
const auckland = at(-36.9, 174.8);

describe("the view", () => {
  it("has Alaska and New Zealand inside, across the end of the world", () => {
    const b = boundsOf([anchorage, auckland]);
    expect(b.x1 - b.x0).toBeLessThan(0.15 * WORLD);
    expect(b.x1).toBeGreaterThan(WORLD);
    const everywhere = [anchorage, auckland, at(48.9, 2.4), at(-33, -70), at(35, 139), at(40, -74), at(19, 72), at(55, 37)];
    for (const [w, h] of [[390, 360], [1020, 770], [2140, 1180]] as const) {
      const t = fit(everywhere, w, h, 60);
      expect(WORLD * t.k).toBeGreaterThanOrEqual(w); // no empty part beside the world
      expect(WORLD * t.k).toBeGreaterThanOrEqual(h); // nor below it
      for (const p of everywhere) {
        const x = (((p.x * t.k + t.x) % (WORLD * t.k)) + WORLD * t.k) % (WORLD * t.k);
        expect(x).toBeLessThanOrEqual(w);
        expect(p.y * t.k + t.y).toBeGreaterThan(0);
        expect(p.y * t.k + t.y).toBeLessThan(h);
      }
    }
  });

  it("never shows less than the width of the world", () => {
    expect(fit([], 1000, 600, 60).k).toBeGreaterThanOrEqual(leastScale(1000, 600));
  });
});

describe("outlines", () => {
  it("go on beyond 180 degrees instead of back across the world", () => {
    expect(unroll([[170, 60], [179, 61], [-179, 62], [-170, 63], [179, 64]])).toEqual([[170, 60], [179, 61], [181, 62], [190, 63], [179, 64]]);
    expect(unroll([[-179, 0], [179, 1]])).toEqual([[-179, 0], [-181, 1]]);
  });

  it("are closed over the pole that they go round", () => {
    const ring = [[-180, -70], [-60, -75], [60, -70], [180, -70], [-180, -70]];
    const [f] = unrolled({ type: "FeatureCollection", features: [{ type: "Feature", properties: null, geometry: { type: "MultiPolygon", coordinates: [[ring]] } }] }).features;
    expect(f!.geometry.coordinates[0]![0]!.slice(-3)).toEqual([[180, -90], [-180, -90], [-180, -70]]);
  });
});

const answer = (o: Partial<SiteMap>): SiteMap => ({
  asOf: "2026-05-01T12:00:00Z", readable: 3, total: 3, unplaced: 0, maintenance: 1, counts: { green: 1, orange: 0, red: 1, grey: 1 }, tenants: ["acme", "zeta"], names: ["a", "b", "c"], tenant: [0, 0, 1],
  latitude: [1, 2, 3], longitude: [4, 5, 6], colour: "rgx", score: [12, 90, null], inMaintenance: [1], by: "", kind: "", notes: [], ...o,
});

describe("what is drawn", () => {
  it("is coloured by health first", () => {
    const { spots, paint } = spotsOf(answer({}));
    expect(paint).toBe(HEALTH);
    expect(spots).toEqual([
      { tenant: "acme", name: "a", colour: "red", score: 12, maintenance: null, place: { latitude: 1, longitude: 4 } },
      { tenant: "acme", name: "b", colour: "green", score: 90, maintenance: true, place: { latitude: 2, longitude: 5 } },
      { tenant: "zeta", name: "c", colour: "grey", score: null, maintenance: null, place: { latitude: 3, longitude: 6 } },
    ]);
  });

  it("or by a number, a text, or what another part of the page knows", () => {
    const numbers = spotsOf(answer({ by: "memoryUsed", kind: "number", values: [99, 20, null] }));
    expect(numbers.spots.map((s) => numbers.paint.kinds[s.kind!]!.label)).toEqual(["80–100 %", "20–40 %", "not known"]);
    const texts = spotsOf(answer({ by: "version", kind: "version", categories: ["1.4", ""], category: [0, -1, 1] }));
    expect(texts.spots.map((s) => texts.paint.kinds[s.kind!]!.label)).toEqual(["1.4", "others", "none"]);
    const steps = spotsOf(answer({}), { of: "Step of web", texts: ["Passed", "Failed"], at: new Map([["acme/a", 1], ["zeta/c", 0]]) });
    expect(steps.spots.map((s) => steps.paint.kinds[s.kind!]!.label)).toEqual(["Failed", "others", "Passed"]);
  });

  it("tells few from none: only what is percent goes from 0 to 100", () => {
    const labels = (by: string, values: (number | null)[]) => {
      const { spots, paint } = spotsOf(answer({ by, kind: "number", values }));
      return spots.map((s) => paint.kinds[s.kind!]!.label);
    };
    expect(labels("alerts", [0, 1, 3])).toEqual(["0", "1", "3"]);
    expect(labels("alerts.critical", [2, 2, null])).toEqual(["2", "2", "not known"]);
    expect(labels("link.loss", [0, 0.5, 1])).toEqual(["0–0.2", "0.4–0.6", "0.8–1"]);
    expect(labels("score", [12, 12, 14])).toEqual(["0–20", "0–20", "0–20"]);
  });

  it("opens a cluster until it comes no closer", () => {
    expect(staysTogether(1, 10)).toBe(false);
    expect(staysTogether(0, 10)).toBe(true);
    expect(staysTogether(0.03, MAX_SCALE / 2)).toBe(false); // further apart than a marker is large, and one mark all the same
    expect(staysTogether(0.03, MAX_SCALE)).toBe(true);
  });

  it("has kinds that hold every value", () => {
    const alerts = ofNumber("Alerts", "", [0, 250], false);
    expect([0, 49, 50, 250].map(alerts.kind)).toEqual([0, 0, 1, 4]);
    expect(ofNumber("Alerts", "", [], false).kind(null)).toBe(5);
    expect(ofTexts("x", Array.from({ length: 12 }, String)).kind(10)).toBe(8);
  });
});
