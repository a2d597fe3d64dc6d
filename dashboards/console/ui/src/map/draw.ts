// Draws the outlines and names below the sites.

import { EXTENT } from "./tile";
import { type Placed, type Tile, tiles, tilesIn } from "./tiles";
import { type Outlines, type Transform, type World, WORLD } from "./world";

export interface Palette {
  sea: string;
  land: string;
  coast: string;
  country: string;
  name: string;
  town: string;
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
  return { sea: read("--sea"), land: read("--land"), coast: read("--coast"), country: read("--country"), name: read("--country-name"), town: read("--town-name"), font: getComputedStyle(e).fontFamily };
}

interface Drawn {
  tile: Tile;
  shift: number;
}

/** A marker over the map, in CSS pixels: names keep clear of it. */
export interface Disc {
  x: number;
  y: number;
  r: number;
}

/** Draws what there is; width and height are in CSS pixels. */
export function draw(canvas: HTMLCanvasElement, world: World | null, t: Transform, p: Palette, width: number, height: number, discs: readonly Disc[]): void {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = p.sea;
  ctx.fillRect(0, 0, w, h);
  ctx.lineJoin = "round";
  const wanted = tilesIn(t, width, height);
  const there = drawnOf(wanted);
  if (world && there.length < wanted.length) {
    for (let shift = Math.floor(-t.x / t.k / WORLD) * WORLD; shift * t.k + t.x < width; shift += WORLD) {
      ctx.setTransform(ratio * t.k, 0, 0, ratio * t.k, ratio * (t.x + shift * t.k), ratio * t.y);
      outlines(ctx, world, p, 1 / t.k);
    }
  }
  for (const { tile, shift } of distinct(there)) {
    const size = WORLD / 2 ** tile.z;
    const left = Math.round(ratio * (t.x + (shift + tile.x * size) * t.k));
    const top = Math.round(ratio * (t.y + tile.y * size * t.k));
    const right = Math.round(ratio * (t.x + (shift + (tile.x + 1) * size) * t.k));
    const bottom = Math.round(ratio * (t.y + (tile.y + 1) * size * t.k));
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, right - left, bottom - top);
    ctx.clip();
    ctx.fillStyle = p.sea;
    ctx.fillRect(left, top, right - left, bottom - top);
    const scale = (right - left) / EXTENT;
    ctx.setTransform(scale, 0, 0, (bottom - top) / EXTENT, left, top);
    outlines(ctx, tile, p, ratio / scale);
    ctx.restore();
  }
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const taken: Box[] = discs.map(({ x, y, r }) => ({ x0: x - r, y0: y - r, x1: x + r, y1: y + r }));
  towns(ctx, there, t, p, width, height, taken, discs);
  if (world && t.k < 40) countries(ctx, world, t, p, width, height, taken);
}

/** What there is of each tile: as many as were wanted once all have come. */
function drawnOf(wanted: readonly Placed[]): Drawn[] {
  return wanted.flatMap(({ tile, shift }) => {
    const best = tiles.best(tile);
    return best ? [{ tile: best, shift }] : [];
  });
}

/** Each once, what has less detail first, so that the others come to lie over it. */
function distinct(all: readonly Drawn[]): Drawn[] {
  const once = new Map(all.map((d) => [`${d.tile.z}/${d.tile.x}/${d.tile.y}/${d.shift}`, d]));
  return [...once.values()].sort((a, b) => a.tile.z - b.tile.z);
}

function outlines(ctx: CanvasRenderingContext2D, o: Outlines, p: Palette, pixel: number): void {
  ctx.fillStyle = p.land;
  ctx.fill(o.land);
  ctx.lineWidth = 0.8 * pixel;
  ctx.strokeStyle = p.country;
  ctx.stroke(o.borders);
  ctx.strokeStyle = p.coast;
  ctx.stroke(o.coasts);
}

interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** Whether there is room for a name; takes it if there is. */
function place(box: Box, taken: Box[]): boolean {
  if (taken.some((o) => box.x0 < o.x1 && o.x0 < box.x1 && box.y0 < o.y1 && o.y0 < box.y1)) return false;
  taken.push(box);
  return true;
}

function towns(ctx: CanvasRenderingContext2D, there: readonly Drawn[], t: Transform, p: Palette, width: number, height: number, taken: Box[], discs: readonly Disc[]): void {
  const all = distinct(there).flatMap(({ tile, shift }) => {
    const size = WORLD / 2 ** tile.z;
    return tile.towns.map((town) => ({ ...town, px: t.x + (shift + (tile.x + town.x) * size) * t.k, py: t.y + (tile.y + town.y) * size * t.k }));
  });
  all.sort((a, b) => b.thousands - a.thousands);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = p.town;
  ctx.strokeStyle = p.land;
  ctx.lineWidth = 2.5;
  for (const town of all) {
    if (town.px < 0 || town.py < 0 || town.px > width || town.py > height) continue;
    const size = town.thousands >= 500 ? 12 : 11;
    ctx.font = `${town.thousands >= 500 ? 600 : 500} ${size}px ${p.font}`;
    const w = ctx.measureText(town.name).width;
    // A town below a marker has its name beside that, on the side where there is room.
    const over = discs.find((d) => Math.hypot(d.x - town.px, d.y - town.py) < d.r);
    const right = over ? over.x + over.r + 3 : town.px + 6;
    const left = over ? over.x - over.r - 3 - w : town.px - 6 - w;
    const from = [right, left].find((x) => place({ x0: Math.min(x, over ? x : town.px - 4), y0: town.py - size * 0.8, x1: Math.max(x + w + 4, over ? 0 : town.px + 4), y1: town.py + size * 0.8 }, taken));
    if (from === undefined) continue;
    if (!over) {
      ctx.beginPath();
      ctx.arc(town.px, town.py, 1.8, 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.strokeText(town.name, from, town.py);
    ctx.fillText(town.name, from, town.py);
  }
}

function countries(ctx: CanvasRenderingContext2D, world: World, t: Transform, p: Palette, width: number, height: number, taken: Box[]): void {
  if (t.k < 1.8) return; // on the whole world they would be noise
  ctx.font = `600 11px ${p.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = p.name;
  for (const n of world.names) {
    const y = n.y * t.k + t.y;
    if (y < 0 || y > height) continue;
    const text = n.text.toUpperCase();
    const w = ctx.measureText(text).width;
    if (w * 1.15 > n.width * t.k) continue;
    for (let x = ((n.x * t.k + t.x) % (WORLD * t.k) + WORLD * t.k) % (WORLD * t.k); x <= width; x += WORLD * t.k) {
      if (place({ x0: x - w / 2, y0: y - 8, x1: x + w / 2, y1: y + 8 }, taken)) ctx.fillText(text, x, y);
    }
  }
}
