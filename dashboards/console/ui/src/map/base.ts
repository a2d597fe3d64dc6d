// The outlines below the sites.

import { type RefObject, useEffect, useLayoutEffect, useState } from "react";
import { onThemeChange } from "../lib/theme";
import type { View } from "./view";
import { coarseWorld, draw, FINE_FROM, fineWorld, type Palette, paletteOf, type World } from "./world";

/** Draws the world into the canvas; tells whether it could not be had. */
export function useBaseMap(box: RefObject<HTMLElement | null>, canvas: RefObject<HTMLCanvasElement | null>, view: View | null): { missing: boolean } {
  const [world, setWorld] = useState<World | null>(null);
  const [failed, setFailed] = useState(false);
  const [palette, setPalette] = useState<Palette | null>(null);
  const wantFine = (view?.transform.k ?? 0) >= FINE_FROM;
  useEffect(() => {
    let current = true;
    const show = (w: World) => current && setWorld((old) => (wantFine && old && w.coarse ? old : w));
    coarseWorld()
      .then((w) => {
        show(w);
        return wantFine ? fineWorld().then(show) : undefined;
      })
      .catch(() => current && setFailed(true));
    return () => {
      current = false;
    };
  }, [wantFine]);
  useEffect(() => {
    const read = () => box.current && setPalette(paletteOf(box.current));
    read();
    return onThemeChange(() => requestAnimationFrame(read));
  }, [box]);
  useLayoutEffect(() => {
    if (canvas.current && world && view && palette) draw(canvas.current, world, view.transform, palette, view.width, view.height);
  }, [canvas, world, view, palette]);
  return { missing: failed && !world };
}
