// The bundled world: projected once into units of the page's own, drawn on a canvas.

import { geoArea, geoCentroid, geoGraticule, geoNaturalEarth1, geoPath } from "d3-geo";
import type { FeatureCollection, MultiPolygon, Polygon } from "geojson";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";

/** The world's size in units; a unit is about 40 km at the equator. */
export const WIDTH = 1000;
export const HEIGHT = 520;

type Atlas = Topology<{ countries: GeometryCollection<{ name: string }>; land: GeometryCollection }>;

const projection = geoNaturalEarth1().fitSize([WIDTH, HEIGHT], { type: "Sphere" });

/** Where a position is, in units. */
export function project(latitude: number, longitude: number): { x: number; y: number } {
  const p = projection([longitude, latitude]);
  return p ? { x: p[0], y: p[1] } : { x: WIDTH / 2, y: HEIGHT / 2 };
}

export interface World {
  coarse: boolean;
  land: Path2D;
  coasts: Path2D;
  borders: Path2D;
  graticule: Path2D;
  names: readonly { text: string; x: number; y: number; width: number }[];
}

export interface Transform {
  x: number;
  y: number;
  k: number;
}

function build(atlas: Atlas, coarse: boolean): World {
  const path = geoPath(projection);
  const p2d = (g: Parameters<typeof path>[0]) => new Path2D(path(g) ?? "");
  const countries = feature(atlas, atlas.objects.countries) as FeatureCollection<Polygon | MultiPolygon, { name: string }>;
  return {
    coarse,
    land: p2d(feature(atlas, atlas.objects.land)),
    coasts: p2d(mesh(atlas, atlas.objects.countries as never, (a: unknown, b: unknown) => a === b)),
    borders: p2d(mesh(atlas, atlas.objects.countries as never, (a: unknown, b: unknown) => a !== b)),
    graticule: p2d(geoGraticule().step([20, 20])()),
    names: countries.features.flatMap((f) => {
      const main = largest(f.geometry);
      const [[x0], [x1]] = path.bounds(main);
      const at = projection(geoCentroid(main));
      return at && f.properties.name ? [{ text: f.properties.name, x: at[0], y: at[1], width: x1 - x0 }] : [];
    }),
  };
}

/** The largest part of a country, so that France's name is not in the Atlantic. */
function largest(g: Polygon | MultiPolygon): Polygon {
  if (g.type === "Polygon") return g;
  let best: Polygon = { type: "Polygon", coordinates: g.coordinates[0] ?? [] };
  let area = geoArea(best);
  for (const coordinates of g.coordinates.slice(1)) {
    const part: Polygon = { type: "Polygon", coordinates };
    const a = geoArea(part);
    if (a < area) continue;
    best = part;
    area = a;
  }
  return best;
}

let coarse: Promise<World> | undefined;
let fine: Promise<World> | undefined;

/** Coastlines for the whole world (110 m). Both atlases come from our own server. */
export const coarseWorld = (): Promise<World> => (coarse ??= import("world-atlas/countries-110m.json").then((m) => build(m.default as unknown as Atlas, true)));

/** Coastlines for a closer look (50 m); loaded when somebody takes one. */
export const fineWorld = (): Promise<World> => (fine ??= import("world-atlas/countries-50m.json").then((m) => build(m.default as unknown as Atlas, false)));

/** Zoom, in pixels a unit, from which the finer coastlines are worth it. */
export const FINE_FROM = 3;

export interface Palette {
  sea: string;
  land: string;
  coast: string;
  country: string;
  graticule: string;
  name: string;
  font: string;
}

/** Colours as the element's theme has them; a canvas knows no light-dark(). */
export function paletteOf(e: HTMLElement): Palette {
  const read = (name: string) => {
    // A fresh element each time: on an old one, a transition would still show the last colour.
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    e.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  return {
    sea: read("--sea"),
    land: read("--land"),
    coast: read("--coast"),
    country: read("--country"),
    graticule: read("--graticule"),
    name: read("--country-name"),
    font: getComputedStyle(e).fontFamily,
  };
}

/** Draws the world; width and height are in CSS pixels. */
export function draw(canvas: HTMLCanvasElement, world: World, t: Transform, p: Palette, width: number, height: number): void {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = p.sea;
  ctx.fillRect(0, 0, w, h);
  ctx.setTransform(ratio * t.k, 0, 0, ratio * t.k, ratio * t.x, ratio * t.y);
  ctx.lineJoin = "round";
  stroke(ctx, world.graticule, p.graticule, 1 / t.k);
  ctx.fillStyle = p.land;
  ctx.fill(world.land);
  stroke(ctx, world.borders, p.country, 0.8 / t.k);
  stroke(ctx, world.coasts, p.coast, 0.8 / t.k);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  names(ctx, world, t, p, width, height);
}

function stroke(ctx: CanvasRenderingContext2D, path: Path2D, style: string, width: number): void {
  ctx.strokeStyle = style;
  ctx.lineWidth = width;
  ctx.stroke(path);
}

function names(ctx: CanvasRenderingContext2D, world: World, t: Transform, p: Palette, width: number, height: number): void {
  if (t.k < 1.8) return; // on the whole world they would be noise
  ctx.font = `500 11px ${p.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = p.name;
  for (const n of world.names) {
    const x = n.x * t.k + t.x;
    const y = n.y * t.k + t.y;
    if (x < 0 || y < 0 || x > width || y > height) continue;
    if (ctx.measureText(n.text).width * 1.15 > n.width * t.k) continue;
    ctx.fillText(n.text, x, y);
  }
}
