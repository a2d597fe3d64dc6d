// Lines of the globe for a map that is flat: Natural Earth's cross the 180th meridian.

import type { FeatureCollection, MultiPolygon, Position } from "geojson";

/** The line without jumps: where it crosses the 180th meridian it goes on beyond 180 degrees. */
export function unroll(line: readonly Position[]): Position[] {
  let turn = 0;
  return line.map(([longitude = 0, latitude = 0], i) => {
    const last = line[i - 1]?.[0];
    if (last !== undefined && longitude - last > 180) turn -= 360;
    else if (last !== undefined && last - longitude > 180) turn += 360;
    return [longitude + turn, latitude];
  });
}

/** A ring without jumps; one that goes round a pole, as Antarctica's does, is closed over it. */
function unrollRing(ring: readonly Position[]): Position[] {
  const out = unroll(ring);
  const [first, last] = [out[0]!, out.at(-1)!];
  if (Math.abs(first[0]! - last[0]!) < 1) return out;
  const pole = last[1]! < 0 ? -90 : 90;
  return [...out, [last[0]!, pole], [first[0]!, pole], first];
}

export const unrolled = (all: FeatureCollection<MultiPolygon>): FeatureCollection<MultiPolygon> => ({
  ...all,
  features: all.features.map((f) => ({ ...f, geometry: { ...f.geometry, coordinates: f.geometry.coordinates.map((p) => p.map(unrollRing)) } })),
});
