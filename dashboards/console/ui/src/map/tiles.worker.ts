// Cuts the world into tiles, away from the page's own thread: outlines from Natural Earth
// in three degrees of detail, and the towns in sight.

import type { FeatureCollection, MultiLineString, MultiPolygon } from "geojson";
import GeoJSONVT from "geojson-vt";
import { feature, mesh } from "topojson-client";
import coarseURL from "world-atlas/countries-110m.json?url";
import fineURL from "world-atlas/countries-10m.json?url";
import middleURL from "world-atlas/countries-50m.json?url";
import { EXTENT, type TileAnswer, type TileAsked, townsFrom } from "./tile";
import { unroll, unrolled } from "./unroll";
import type { Atlas } from "./world";

interface Index {
  land: GeoJSONVT;
  coasts: GeoJSONVT;
  borders: GeoJSONVT;
}

/** Name, latitude, longitude, thousands of people; the largest first. */
type Town = [name: string, latitude: number, longitude: number, thousands: number];

const once = <T>(make: () => Promise<T>): (() => Promise<T>) => {
  let made: Promise<T> | undefined;
  return () => (made ??= make().catch((e: unknown) => {
    made = undefined; // the next tile tries again
    throw e;
  }));
};

async function load<T>(url: string): Promise<T> {
  const r = await fetch(url);
  if (!r.ok) throw new Error(`${url}: ${r.status}`);
  return (await r.json()) as T;
}

const index = (url: string) =>
  once<Index>(async () => {
    const atlas = await load<Atlas>(url);
    const options = { maxZoom: 14, extent: EXTENT, buffer: 32, tolerance: 4, indexMaxZoom: 3 };
    const lines = (keep: (a: unknown, b: unknown) => boolean): MultiLineString => {
      const all = mesh(atlas, atlas.objects.countries as never, keep) as MultiLineString;
      return { ...all, coordinates: all.coordinates.map(unroll) };
    };
    return {
      land: new GeoJSONVT(unrolled(feature(atlas, atlas.objects.land) as unknown as FeatureCollection<MultiPolygon>), options),
      coasts: new GeoJSONVT(lines((a, b) => a === b), options),
      borders: new GeoJSONVT(lines((a, b) => a !== b), options),
    };
  });

const coarse = index(coarseURL);
const middle = index(middleURL);
const fine = index(fineURL);

let urls: { cities: string; towns: string };
const cities = once(() => load<Town[]>(urls.cities));
/** Towns by tile of zoom 6, so that a tile looks at few. */
const towns = once(async () => {
  const by = new Map<string, Town[]>();
  for (const t of [...(await cities()), ...(await load<Town[]>(urls.towns))]) {
    const { x, y } = unit(t);
    const id = `${Math.floor(x * 64)}/${Math.floor(y * 64)}`;
    const list = by.get(id);
    if (list) list.push(t);
    else by.set(id, [t]);
  }
  return by;
});

function unit([, latitude, longitude]: Town): { x: number; y: number } {
  const s = Math.sin((latitude * Math.PI) / 180);
  return { x: longitude / 360 + 0.5, y: 0.5 - Math.log((1 + s) / (1 - s)) / (4 * Math.PI) };
}

/** Lines of a tile, one after the other: how many points each has, and their positions. */
function flat(tiles: GeoJSONVT, z: number, x: number, y: number): { lengths: Uint32Array; points: Int16Array } {
  const rings: [number, number][][] = [];
  for (const f of tiles.getTile(z, x, y)?.features ?? []) if (f.type !== 1) rings.push(...(f.geometry as [number, number][][]));
  const lengths = Uint32Array.from(rings, (r) => r.length);
  const points = new Int16Array(2 * lengths.reduce((n, l) => n + l, 0));
  let i = 0;
  for (const ring of rings)
    for (const [px, py] of ring) {
      points[i++] = px;
      points[i++] = py;
    }
  return { lengths, points };
}

/** How many towns of a tile may be named. */
const NAMED = 24;

async function townsOf(z: number, x: number, y: number): Promise<TileAnswer["towns"]> {
  const least = townsFrom(z);
  if (least === Infinity) return [];
  const list = z < 7 ? await cities() : ((await towns()).get(`${x >> (z - 6)}/${y >> (z - 6)}`) ?? []);
  const out: TileAnswer["towns"] = [];
  for (const t of list) {
    if (t[3] < least || out.length >= NAMED) break;
    const p = unit(t);
    const [px, py] = [p.x * 2 ** z - x, p.y * 2 ** z - y];
    if (px >= 0 && px < 1 && py >= 0 && py < 1) out.push({ name: t[0], x: px, y: py, thousands: t[3] });
  }
  return out;
}

async function tile({ z, x, y }: TileAsked): Promise<TileAnswer> {
  const [world, named] = await Promise.all([(z < 3 ? coarse : z < 5 ? middle : fine)(), townsOf(z, x, y).catch(() => [])]);
  return { z, x, y, land: flat(world.land, z, x, y), coasts: flat(world.coasts, z, x, y), borders: flat(world.borders, z, x, y), towns: named };
}

self.onmessage = (e: MessageEvent<TileAsked | typeof urls>) => {
  const asked = e.data;
  if ("cities" in asked) {
    urls = asked;
    return;
  }
  tile(asked).then(
    (t) => postMessage(t, { transfer: [t.land, t.coasts, t.borders].flatMap((l) => [l.lengths.buffer, l.points.buffer]) }),
    () => postMessage({ ...asked, failed: true }),
  );
};
