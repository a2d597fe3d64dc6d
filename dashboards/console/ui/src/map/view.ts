// What part of the world the map shows: size, zoom and pan, by hand and by animation.

import { select } from "d3-selection";
import { zoom, zoomIdentity, zoomTransform, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import { type RefObject, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Point } from "../lib/cluster";
import { reducedMotion } from "../lib/theme";
import { type Transform, WORLD } from "./world";

export const MAX_SCALE = 2000; // pixels a unit: 20 m a pixel at the equator
const MOVE_MS = 380;
const MARGIN = 48;

interface Size {
  width: number;
  height: number;
}

export interface View extends Size {
  transform: Transform;
}

const remembered = new Map<string, View>();

/** The box around points, across the end of the world where that is shorter: x1 may be beyond it. */
export function boundsOf(points: readonly { x: number; y: number }[]) {
  let [y0, y1] = [Infinity, -Infinity];
  for (const p of points) {
    y0 = Math.min(y0, p.y);
    y1 = Math.max(y1, p.y);
  }
  // Left of the box is the widest strip without a point.
  const xs = points.map((p) => p.x).sort((a, b) => a - b);
  let [x0, x1] = [xs[0] ?? 0, xs.at(-1) ?? 0];
  let widest = WORLD - (x1 - x0);
  for (let i = 1; i < xs.length; i++) {
    if (xs[i]! - xs[i - 1]! <= widest) continue;
    widest = xs[i]! - xs[i - 1]!;
    [x0, x1] = [xs[i]!, xs[i - 1]! + WORLD];
  }
  return { x0, y0, x1, y1 };
}

/** What is between Alaska's north and Tierra del Fuego: the whole world, as people live in it. */
const INHABITED = { x0: 0, x1: WORLD, y0: 0.2 * WORLD, y1: 0.7 * WORLD };

/** The transform that shows all the points, with room around them; the world fills the width at least. */
export function fit(points: readonly { x: number; y: number }[], width: number, height: number, maxScale: number): Transform {
  const b = points.length > 0 ? boundsOf(points) : INHABITED;
  const margin = Math.min(MARGIN, width / 12, height / 8);
  const wanted = Math.min((width - 2 * margin) / Math.max(b.x1 - b.x0, 1e-6), (height - 2 * margin) / Math.max(b.y1 - b.y0, 1e-6), maxScale);
  const k = Math.max(wanted, leastScale(width, height));
  const y = height / 2 - (k * (b.y0 + b.y1)) / 2;
  return { k, x: width / 2 - (k * (b.x0 + b.x1)) / 2, y: k * WORLD > height ? Math.min(0, Math.max(height - k * WORLD, y)) : (height - k * WORLD) / 2 };
}

/** The scale at which the world fills the box: it repeats sideways, but is as high as wide. */
export const leastScale = (width: number, height: number): number => Math.max(width, Math.min(height, 1.3 * width)) / WORLD;

const isSame = (a: Transform, b: Transform): boolean => Math.abs(a.k / b.k - 1) < 1e-6 && Math.abs(a.x - b.x) < 1 && Math.abs(a.y - b.y) < 1;
const toZoom = (t: Transform): ZoomTransform => zoomIdentity.translate(t.x, t.y).scale(t.k);

export interface ViewControl {
  /** null until the map was measured. */
  view: View | null;
  minScale: number;
  /** Whether an animation is under way. */
  isMoving: () => boolean;
  moveTo: (t: Transform) => void;
  /** The transform that shows all sites. */
  home: (width: number, height: number) => Transform;
}

interface Options {
  /** Remembers the view under this name while the page is open. */
  remember?: string | undefined;
  /** Nothing to operate. */
  still: boolean;
  /** The map was moved by hand. */
  onHand: () => void;
}

/** Lets the box be zoomed and panned, and follows the points until somebody does. */
export function useView(box: RefObject<HTMLDivElement | null>, points: readonly Point[], { remember, still, onHand }: Options): ViewControl {
  const behaviour = useRef<ZoomBehavior<HTMLDivElement, unknown> | null>(null);
  const moving = useRef(0); // the animation's next frame; 0 while the map rests
  const [size, setSize] = useState<Size | null>(null);
  const [transform, setTransform] = useState<Transform | null>(null);
  const view = useMemo<View | null>(() => (size && transform ? { ...size, transform } : null), [size, transform]);
  const home = useCallback(
    (w: number, h: number) => fit(points.length > 0 ? points : [], w, h, points.length > 1 ? 60 : still ? 10 : 40),
    [points, still],
  );
  const homeRef = useRef(home);
  homeRef.current = home;
  const onHandRef = useRef(onHand);
  onHandRef.current = onHand;

  useLayoutEffect(() => {
    const e = box.current;
    if (!e) return;
    const z = zoom<HTMLDivElement, unknown>()
      .clickDistance(4)
      .filter((ev: Event) => {
        if (still) return false;
        const m = ev as MouseEvent;
        if ((ev.target as Element).closest?.(".map-tools, .map-place, .map-empty")) return false;
        return (!m.ctrlKey || ev.type === "wheel") && !m.button;
      })
      .on("zoom", (ev: { transform: ZoomTransform; sourceEvent: unknown }) => {
        const { x, y, k } = ev.transform;
        if (ev.sourceEvent) {
          cancelAnimationFrame(moving.current);
          moving.current = 0;
          onHandRef.current();
        }
        setTransform({ x, y, k });
        if (remember) remembered.set(remember, { transform: { x, y, k }, width: e.clientWidth, height: e.clientHeight });
      });
    behaviour.current = z;
    const s = select(e);
    s.call(z).on("dblclick.zoom", null);
    let last: Size | null = null;
    const measure = () => {
      const [width, height] = [e.clientWidth, e.clientHeight];
      if (width === 0 || height === 0 || (last && last.width === width && last.height === height)) return;
      z.extent([[0, 0], [width, height]]).scaleExtent([leastScale(width, height), MAX_SCALE]);
      z.translateExtent([[-Infinity, 0], [Infinity, WORLD]]);
      // What is in the middle stays in the middle; a map that shows all sites goes on to do so.
      const old = last ? { ...last, transform: zoomTransform(e) } : remember ? remembered.get(remember) : undefined;
      const t = old && !isSame(old.transform, homeRef.current(old.width, old.height))
        ? { k: old.transform.k, x: old.transform.x + (width - old.width) / 2, y: old.transform.y + (height - old.height) / 2 }
        : homeRef.current(width, height);
      last = { width, height };
      setSize(last);
      s.call(z.transform, toZoom({ ...t, k: Math.max(t.k, leastScale(width, height)) }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(e);
    return () => {
      observer.disconnect();
      s.on(".zoom", null);
    };
  }, [box, remember, still]);

  // Until somebody moves the map, it follows the sites.
  const sizeRef = useRef({ width: 0, height: 0 });
  if (size) sizeRef.current = size;
  const fitted = useRef<readonly Point[] | null>(remember && remembered.has(remember) ? points : null);
  const ready = view !== null;
  useEffect(() => {
    const e = box.current;
    const z = behaviour.current;
    if (!ready || !e || !z || fitted.current === points) return;
    const wasEmpty = fitted.current === null || fitted.current.length === 0;
    fitted.current = points;
    if (points.length === 0 || (!wasEmpty && !still)) return;
    // Of the size that was measured: were the box's newer, the next measuring would move it once more.
    select(e).call(z.transform, toZoom(homeRef.current(sizeRef.current.width, sizeRef.current.height)));
  }, [box, points, ready, still]);

  const moveTo = useCallback((t: Transform) => {
    const e = box.current;
    const z = behaviour.current;
    if (!e || !z) return;
    cancelAnimationFrame(moving.current);
    moving.current = 0;
    if (reducedMotion()) {
      select(e).call(z.transform, toZoom(t));
      return;
    }
    // Straight between the two views; scale by its logarithm, around the one point
    // that stays in place, so that the target is never out of sight.
    const start = performance.now();
    const { x: x0, y: y0, k: k0 } = zoomTransform(e);
    const step = (now: number) => {
      const u = Math.min(1, (now - start) / MOVE_MS);
      const ease = 1 - (1 - u) ** 3;
      const k = k0 * (t.k / k0) ** ease;
      const f = Math.abs(t.k - k0) < 1e-9 ? ease : (k - k0) / (t.k - k0);
      moving.current = u < 1 ? requestAnimationFrame(step) : 0;
      select(e).call(z.transform, toZoom({ k, x: x0 + (t.x - x0) * f, y: y0 + (t.y - y0) * f }));
    };
    moving.current = requestAnimationFrame(step);
  }, [box]);
  useEffect(() => () => cancelAnimationFrame(moving.current), []);


  const minScale = view ? leastScale(view.width, view.height) : 1;
  return { view, minScale, isMoving: useCallback(() => moving.current !== 0, []), moveTo, home };
}
