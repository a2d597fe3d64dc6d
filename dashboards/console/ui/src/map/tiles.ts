// Tiles of the world, made by a worker and kept as paths.

import places from "virtual:towns";
import { type Lines, type TileAnswer, type TileAsked, type Town } from "./tile";
import { type Transform, WORLD } from "./world";

/** Pixels that a tile is wide at least. */
const WIDTH = 320;
const DEEPEST = 13;
const KEPT = 400;

export interface Tile extends TileAsked {
  land: Path2D;
  coasts: Path2D;
  borders: Path2D;
  towns: readonly Town[];
}

const idOf = (t: TileAsked): string => `${t.z}/${t.x}/${t.y}`;

function pathOf({ lengths, points }: Lines): Path2D {
  const p = new Path2D();
  let i = 0;
  for (const n of lengths) {
    for (let j = 0; j < n; j++, i += 2) {
      if (j === 0) p.moveTo(points[i]!, points[i + 1]!);
      else p.lineTo(points[i]!, points[i + 1]!);
    }
  }
  return p;
}

/** Tiles that were asked for, the newest last. */
class Tiles {
  private worker: Worker | undefined;
  private readonly have = new Map<string, Tile | "asked">();
  private readonly listeners = new Set<() => void>();

  subscribe(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  find(t: TileAsked): Tile | undefined {
    const held = this.have.get(idOf(t));
    return held === "asked" ? undefined : held;
  }

  /** What is there of a tile: itself, or the nearest that it is a part of. Asks for it if it isn't there. */
  best(t: TileAsked): Tile | undefined {
    this.ask(t);
    for (let up = t; ; up = { z: up.z - 1, x: up.x >> 1, y: up.y >> 1 }) {
      const held = this.find(up);
      if (held || up.z === 0) return held;
    }
  }

  private ask(t: TileAsked): void {
    const id = idOf(t);
    const held = this.have.get(id);
    if (held) {
      this.have.delete(id); // the newest last
      this.have.set(id, held);
      return;
    }
    if (!this.worker) {
      this.worker = new Worker(new URL("./tiles.worker.ts", import.meta.url), { type: "module" });
      this.worker.postMessage(places);
      this.worker.onmessage = (e: MessageEvent<TileAnswer | (TileAsked & { failed: true })>) => this.take(e.data);
    }
    this.have.set(id, "asked");
    this.worker.postMessage(t);
    for (const old of this.have.keys()) {
      if (this.have.size <= KEPT) break;
      this.have.delete(old);
    }
  }

  private take(t: TileAnswer | (TileAsked & { failed: true })): void {
    if ("failed" in t) {
      setTimeout(() => this.have.delete(idOf(t)), 5000); // then it may be asked for again
      return;
    }
    this.have.set(idOf(t), { z: t.z, x: t.x, y: t.y, land: pathOf(t.land), coasts: pathOf(t.coasts), borders: pathOf(t.borders), towns: t.towns });
    for (const f of this.listeners) f();
  }
}

export const tiles = new Tiles();

export interface Placed {
  tile: TileAsked;
  /** Which repetition of the world it is in, and so how far it is moved, in units. */
  shift: number;
}

/** The zoom whose tiles fit a scale. */
export const zoomOf = (k: number): number => Math.max(0, Math.min(DEEPEST, Math.floor(Math.log2((k * WORLD) / WIDTH))));

/** The tiles that a view needs. */
export function tilesIn({ x, y, k }: Transform, width: number, height: number): Placed[] {
  const z = zoomOf(k);
  const n = 2 ** z;
  const size = (k * WORLD) / n;
  const out: Placed[] = [];
  const clamp = (v: number) => Math.max(0, Math.min(n - 1, v));
  for (let ty = clamp(Math.floor(-y / size)); ty <= clamp(Math.floor((height - y) / size)); ty++) {
    for (let tx = Math.floor(-x / size); tx <= Math.floor((width - x) / size); tx++) {
      const world = Math.floor(tx / n);
      out.push({ tile: { z, x: tx - world * n, y: ty }, shift: world * WORLD });
    }
  }
  return out;
}
