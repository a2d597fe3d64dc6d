// The world as the map draws it: Mercator's projection in units of the page's own, and the
// outlines of the whole world, which are there before any tile is.

import { geoArea, geoCentroid, geoMercator, geoPath } from "d3-geo";
import type { FeatureCollection, MultiPolygon, Polygon } from "geojson";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";

/** The world's width and height in units: a unit is 40 km at the equator. It repeats to the left and right. */
export const WORLD = 1000;

/** Where Mercator's square ends, in degrees. */
const MAX_LATITUDE = 85.0511;

export type Atlas = Topology<{ countries: GeometryCollection<{ name: string }>; land: GeometryCollection }>;

/** Where a position is, in units. */
export function project(latitude: number, longitude: number): { x: number; y: number } {
  const s = Math.sin((Math.max(-MAX_LATITUDE, Math.min(MAX_LATITUDE, latitude)) * Math.PI) / 180);
  return { x: (longitude / 360 + 0.5) * WORLD, y: (0.5 - Math.log((1 + s) / (1 - s)) / (4 * Math.PI)) * WORLD };
}

// As project, but what crosses the 180th meridian is cut there.
const projection = geoMercator().scale(WORLD / (2 * Math.PI)).translate([WORLD / 2, WORLD / 2]).precision(0);

export interface Outlines {
  land: Path2D;
  coasts: Path2D;
  borders: Path2D;
}

export interface World extends Outlines {
  names: readonly { text: string; x: number; y: number; width: number }[];
}

export interface Transform {
  x: number;
  y: number;
  k: number;
}

function build(atlas: Atlas): World {
  const path = geoPath(projection);
  const p2d = (g: Parameters<typeof path>[0]) => new Path2D(path(g) ?? "");
  const countries = feature(atlas, atlas.objects.countries) as FeatureCollection<Polygon | MultiPolygon, { name: string }>;
  return {
    land: p2d(feature(atlas, atlas.objects.land)),
    coasts: p2d(mesh(atlas, atlas.objects.countries as never, (a: unknown, b: unknown) => a === b)),
    borders: p2d(mesh(atlas, atlas.objects.countries as never, (a: unknown, b: unknown) => a !== b)),
    names: countries.features.flatMap((f) => {
      const main = largest(f.geometry);
      const [[x0], [x1]] = path.bounds(main);
      const [longitude, latitude] = geoCentroid(main);
      return f.properties.name ? [{ text: f.properties.name, ...project(latitude, longitude), width: x1 - x0 }] : [];
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

/** The whole world (110 m); it comes from our own server, as all of the map does. */
export const coarseWorld = (): Promise<World> => (coarse ??= import("world-atlas/countries-110m.json").then((m) => build(m.default as unknown as Atlas)));
