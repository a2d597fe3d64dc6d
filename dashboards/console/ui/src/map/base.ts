// The outlines below the sites.

import { type RefObject, useEffect, useLayoutEffect, useReducer, useState } from "react";
import { onThemeChange } from "../lib/theme";
import { type Disc, draw, type Palette, paletteOf } from "./draw";
import { tiles } from "./tiles";
import type { View } from "./view";
import { coarseWorld, type World } from "./world";

/** Draws the world into the canvas, its names clear of what lies over it; tells whether it could not be had. */
export function useBaseMap(box: RefObject<HTMLElement | null>, canvas: RefObject<HTMLCanvasElement | null>, view: View | null, discs: readonly Disc[]): { missing: boolean } {
  const [world, setWorld] = useState<World | null>(null);
  const [failed, setFailed] = useState(false);
  const [palette, setPalette] = useState<Palette | null>(null);
  const [come, more] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    let current = true;
    coarseWorld().then(
      (w) => current && setWorld(w),
      () => current && setFailed(true),
    );
    return () => {
      current = false;
    };
  }, []);
  useEffect(() => {
    let frame = 0;
    const stop = tiles.subscribe(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(more); // those that come together are drawn together
    });
    return () => {
      cancelAnimationFrame(frame);
      stop();
    };
  }, []);
  useEffect(() => {
    const read = () => box.current && setPalette(paletteOf(box.current));
    read();
    return onThemeChange(() => requestAnimationFrame(read));
  }, [box]);
  useLayoutEffect(() => {
    if (canvas.current && view && palette) draw(canvas.current, world, view.transform, palette, view.width, view.height, discs);
  }, [canvas, world, view, palette, come, discs]);
  return { missing: failed && !world };
}
