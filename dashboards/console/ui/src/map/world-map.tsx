import { select } from "d3-selection";
import { zoom, zoomIdentity, zoomTransform, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import { type KeyboardEvent, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Site } from "../api/types";
import { Shape } from "../components/shape";
import { buildClusters, nearestInDirection, type Point } from "../lib/cluster";
import { formatCount, formatScore } from "../lib/format";
import { compareWorst, siteKey, sitePath } from "../lib/site";
import { onThemeChange, reducedMotion } from "../lib/theme";
import { compareMarks, holds, type Mark, Marker, markOf, Tip } from "./markers";
import { coarseWorld, draw, FINE_FROM, fineWorld, HEIGHT, type Palette, paletteOf, project, type Transform, WIDTH, type World } from "./world";

const CLUSTER_RADIUS = 36;
const MAX_SCALE = 800; // pixels a unit: about 50 m a pixel
const LEVELS_PER_OCTAVE = 2;
const MOVE_MS = 380;
const MARGIN = 48;

interface Size {
  width: number;
  height: number;
}

interface View extends Size {
  transform: Transform;
}

interface Props {
  /** Sites with a place. */
  sites: readonly Site[];
  onOpen?: (s: Site) => void;
  /** The site that is pointed at elsewhere. */
  lit?: string | null;
  onLit?: (key: string | null) => void;
  /** Sites that changed their colour a moment ago. */
  turned?: ReadonlySet<string>;
  /** Remembers the view under this name while the page is open. */
  remember?: string;
  /** Only shows where; nothing to operate. */
  still?: boolean;
  label: string;
}

const remembered = new Map<string, View>();

/** The array itself while keys and positions stay the same: colours change all the time, places do not. */
function usePoints(sites: readonly Site[]): readonly Point[] {
  const last = useRef<Point[]>([]);
  return useMemo(() => {
    const next = sites.map((s) => ({ key: siteKey(s), ...project(s.place!.latitude, s.place!.longitude) }));
    const old = last.current;
    const same = old.length === next.length && next.every((p, i) => p.key === old[i]!.key && p.x === old[i]!.x && p.y === old[i]!.y);
    if (!same) last.current = next;
    return last.current;
  }, [sites]);
}

function boundsOf(points: readonly { x: number; y: number }[]) {
  let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const p of points) {
    x0 = Math.min(x0, p.x);
    y0 = Math.min(y0, p.y);
    x1 = Math.max(x1, p.x);
    y1 = Math.max(y1, p.y);
  }
  return { x0, y0, x1, y1 };
}

/** The transform that shows all the points, with room around them. */
function fit(points: readonly { x: number; y: number }[], width: number, height: number, maxScale: number): Transform {
  const b = points.length > 0 ? boundsOf(points) : { x0: 0, y0: 0, x1: WIDTH, y1: HEIGHT };
  const margin = Math.min(MARGIN, width / 6, height / 6);
  const k = Math.min((width - 2 * margin) / Math.max(b.x1 - b.x0, 1e-6), (height - 2 * margin) / Math.max(b.y1 - b.y0, 1e-6), maxScale);
  return { k, x: width / 2 - (k * (b.x0 + b.x1)) / 2, y: height / 2 - (k * (b.y0 + b.y1)) / 2 };
}

const toZoom = (t: Transform): ZoomTransform => zoomIdentity.translate(t.x, t.y).scale(t.k);

export function WorldMap({ sites: all, onOpen, lit = null, onLit, turned, remember, still = false, label }: Props) {
  // The order must not depend on the colours, else every change would rebuild the clusters.
  const sites = useMemo(() => [...all].sort((a, b) => (siteKey(a) < siteKey(b) ? -1 : 1)), [all]);
  const points = usePoints(sites);
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const behaviour = useRef<ZoomBehavior<HTMLDivElement, unknown> | null>(null);
  const stack = useRef<{ view: Transform; mark: string }[]>([]);
  const focusNext = useRef<ReadonlySet<string> | null>(null);
  const held = useRef<string | null>(null); // the marker that has the focus; the id is also the key of a site in it
  const moving = useRef(0); // the animation's next frame; 0 while the map rests
  const [size, setSize] = useState<Size | null>(null);
  const [transform, setTransform] = useState<Transform | null>(null);
  const view = useMemo<View | null>(() => (size && transform ? { ...size, transform } : null), [size, transform]);
  const [world, setWorld] = useState<World | null>(null);
  const [failed, setFailed] = useState(false);
  const [palette, setPalette] = useState<Palette | null>(null);
  const [tip, setTip] = useState<string | null>(null);
  const [place, setPlace] = useState<readonly Site[] | null>(null);

  const minScale = view ? Math.min(view.width / WIDTH, view.height / HEIGHT) : 1;
  const home = useCallback(
    (w: number, h: number) => fit(points.length > 0 ? points : [], w, h, points.length > 1 ? 40 : still ? 6 : 12),
    [points, still],
  );

  // Size, zoom and pan.
  const homeRef = useRef(home);
  homeRef.current = home;
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
          stack.current = []; // moved by hand: there is nothing to go back to
          focusNext.current = null;
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
      z.extent([[0, 0], [width, height]]).scaleExtent([Math.min(width / WIDTH, height / HEIGHT) * 0.9, MAX_SCALE]);
      z.translateExtent([[-WIDTH * 0.4, -HEIGHT * 0.6], [WIDTH * 1.4, HEIGHT * 1.6]]);
      // What is in the middle stays in the middle.
      const old = last ? { ...last, transform: zoomTransform(e) } : remember ? remembered.get(remember) : undefined;
      const t = old
        ? { k: old.transform.k, x: old.transform.x + (width - old.width) / 2, y: old.transform.y + (height - old.height) / 2 }
        : homeRef.current(width, height);
      last = { width, height };
      setSize(last);
      s.call(z.transform, toZoom(t));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(e);
    return () => {
      observer.disconnect();
      s.on(".zoom", null);
    };
  }, [remember, still]);

  // Until somebody moves the map, it follows the sites.
  const fitted = useRef<readonly Point[] | null>(remember && remembered.has(remember) ? points : null);
  const ready = view !== null;
  useEffect(() => {
    const e = box.current;
    const z = behaviour.current;
    if (!ready || !e || !z || fitted.current === points) return;
    const wasEmpty = fitted.current === null || fitted.current.length === 0;
    fitted.current = points;
    if (points.length === 0 || (!wasEmpty && !still)) return;
    select(e).call(z.transform, toZoom(homeRef.current(e.clientWidth, e.clientHeight)));
  }, [points, ready, still]);

  // The base map.
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
  }, []);
  useLayoutEffect(() => {
    if (canvas.current && world && view && palette) draw(canvas.current, world, view.transform, palette, view.width, view.height);
  }, [world, view, palette]);

  // Clusters of all levels, then the marks of this one.
  const levels = useMemo(() => {
    const scales: number[] = [];
    for (let k = minScale * 0.9; k < MAX_SCALE * 1.01; k *= 2 ** (1 / LEVELS_PER_OCTAVE)) scales.push(k);
    return { scales, levels: buildClusters(points, CLUSTER_RADIUS, scales) };
  }, [points, minScale]);
  const level = view ? Math.max(0, levels.scales.findLastIndex((k) => k <= view.transform.k * 1.0001)) : 0;
  const marks = useMemo(
    () => (levels.levels[level] ?? []).map((c) => markOf(c.id, c.x, c.y, c.members.flatMap((i) => sites[i] ?? []))).sort(compareMarks),
    [levels, level, sites],
  );
  const visible = useMemo(() => {
    if (!view) return [];
    const { x, y, k } = view.transform;
    return marks.flatMap((mark) => {
      const [px, py] = [mark.x * k + x, mark.y * k + y];
      return px < -30 || py < -30 || px > view.width + 30 || py > view.height + 30 ? [] : [{ mark, px, py, x: px, y: py }];
    });
  }, [marks, view]);

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
  }, []);
  useEffect(() => () => cancelAnimationFrame(moving.current), []);

  const viewRef = useRef(view);
  viewRef.current = view;
  const open = useCallback(
    (m: Mark, byKeyboard: boolean) => {
      const v = viewRef.current;
      const only = m.sites.length === 1 ? m.sites[0] : undefined;
      if (only) return onOpen?.(only);
      if (!v) return;
      const at = m.sites.map((s) => project(s.place!.latitude, s.place!.longitude));
      const b = boundsOf(at);
      const spread = Math.max(b.x1 - b.x0, b.y1 - b.y0);
      if (spread * MAX_SCALE < CLUSTER_RADIUS) return setPlace([...m.sites].sort(compareWorst)); // they never come apart
      const t = fit(at, v.width, v.height, MAX_SCALE);
      if (t.k < v.transform.k * 1.5) {
        // They fill the view already: go closer around the middle of them.
        t.k = Math.min(v.transform.k * 2, MAX_SCALE);
        t.x = v.width / 2 - t.k * m.x;
        t.y = v.height / 2 - t.k * m.y;
      }
      stack.current.push({ view: v.transform, mark: m.id });
      setTip(null);
      if (byKeyboard) focusNext.current = new Set(m.sites.map(siteKey));
      moveTo(t);
    },
    [moveTo, onOpen],
  );

  // A marker that had the focus may have become another element: a part of it while
  // the map comes closer, a larger one while it goes back. The focus goes with its
  // site; were it lost, no key would reach the map.
  useLayoutEffect(() => {
    const id = held.current;
    const active = document.activeElement;
    if (id === null || !box.current || (active && active !== document.body)) return;
    const heir = visible.find((v) => v.mark.id === id) ?? visible.find((v) => holds(v.mark, id));
    if (heir) focusMark(box.current, heir.mark.id);
    else box.current.focus({ preventScroll: true });
  }, [visible]);

  // After a cluster was opened by keyboard, the focus goes to the worst of its parts,
  // once the map rests: on the way there its parts still change.
  useEffect(() => {
    const wanted = focusNext.current;
    if (!wanted || moving.current !== 0) return;
    focusNext.current = null;
    const target = visible.find((v) => v.mark.sites.some((s) => wanted.has(siteKey(s))));
    if (target) focusMark(box.current, target.mark.id);
  }, [visible]);

  const zoomBy = (f: number) => {
    if (!view) return;
    const k = Math.min(MAX_SCALE, Math.max(minScale * 0.9, view.transform.k * f));
    const [cx, cy] = [view.width / 2, view.height / 2];
    const r = k / view.transform.k;
    stack.current = [];
    moveTo({ k, x: cx - (cx - view.transform.x) * r, y: cy - (cy - view.transform.y) * r });
  };
  const showAll = () => {
    stack.current = [];
    if (view) moveTo(home(view.width, view.height));
  };
  const back = (): boolean => {
    if (place) {
      setPlace(null);
      return true;
    }
    const last = stack.current.pop();
    if (!last) return false;
    const inside = marks.find((m) => m.id === last.mark)?.sites ?? sites.filter((s) => siteKey(s) === last.mark);
    focusNext.current = new Set([last.mark, ...inside.map(siteKey)]);
    moveTo(last.view);
    return true;
  };

  const onKeyDown = (e: KeyboardEvent) => {
    if (still || e.altKey || e.ctrlKey || e.metaKey) return;
    const arrow = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as const)[e.key as "ArrowLeft"];
    if (arrow) {
      e.preventDefault();
      const id = (e.target as Element).closest("[data-mark]")?.getAttribute("data-mark");
      const from = visible.find((v) => v.mark.id === id);
      const inView = visible.filter((v) => view && v.px >= 0 && v.py >= 0 && v.px <= view.width && v.py <= view.height);
      const next = from && nearestInDirection(from, inView.filter((v) => v !== from), arrow[0], arrow[1]);
      if (next) focusMark(box.current, next.mark.id);
      else if (view) {
        const t = view.transform;
        stack.current = [];
        moveTo({ k: t.k, x: t.x - arrow[0] * view.width * 0.25, y: t.y - arrow[1] * view.height * 0.25 });
      }
      return;
    }
    if (e.key === "Escape") {
      if (back()) e.preventDefault();
    } else if (e.key === "+" || e.key === "=") zoomBy(1.8);
    else if (e.key === "-") zoomBy(1 / 1.8);
    else if (e.key === "0") showAll();
  };

  const point = (e: { target: EventTarget }) => {
    const id = (e.target as Element).closest?.("[data-mark]")?.getAttribute("data-mark") ?? null;
    setTip(id);
    if (!onLit) return;
    const m = id === null ? undefined : visible.find((v) => v.mark.id === id)?.mark;
    onLit(m?.sites.length === 1 ? siteKey(m.sites[0]!) : null);
  };
  const shown = tip === null || place ? undefined : visible.find((v) => v.mark.id === tip);

  return (
    <div ref={box} className={still ? "map still" : "map"} role="group" aria-label={label} tabIndex={-1} onKeyDown={onKeyDown}
      onPointerOver={point} onPointerLeave={() => point({ target: document.body })} onBlur={() => { held.current = null; setTip(null); }}
      onFocus={(e) => { held.current = e.target.getAttribute("data-mark"); point(e); }}>
      <canvas ref={canvas} aria-hidden />
      {visible.map(({ mark, px, py }) => (
        <Marker key={mark.id} mark={mark} px={px} py={py} lit={holds(mark, lit)} onOpen={open}
          turned={turned !== undefined && turned.size > 0 && mark.sites.some((s) => turned.has(siteKey(s)))} />
      ))}
      {shown && view && !still && <TipBox mark={shown.mark} x={shown.px} y={shown.py} width={view.width} height={view.height} />}
      {failed && !world && (
        <div className="map-empty">
          <div className="note small">The map's outlines could not be loaded; the sites are in their places.</div>
        </div>
      )}
      {!still && (
        <div className="map-tools" role="group" aria-label="Zoom">
          <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick={() => zoomBy(1.8)}>
            <Icon d="M8 3v10M3 8h10" />
          </button>
          <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick={() => zoomBy(1 / 1.8)}>
            <Icon d="M3 8h10" />
          </button>
          <button type="button" aria-label="Show all sites" title="Show all sites (0)" onClick={showAll}>
            <Icon d="M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10" />
          </button>
        </div>
      )}
      {place && (
        <section className="card map-place" aria-label="Sites at this place">
          <header>
            <h2>{formatCount(place.length)} sites at one place</h2>
            <button type="button" className="button quiet icon" aria-label="Close" onClick={() => setPlace(null)}>
              <Icon d="M4 4l8 8M12 4l-8 8" />
            </button>
          </header>
          <ul>
            {place.map((s) => (
              <li key={siteKey(s)}>
                <a href={sitePath(s)}
                  onClick={(e) => {
                    if (!onOpen || e.metaKey || e.ctrlKey || e.shiftKey) return;
                    e.preventDefault();
                    onOpen(s);
                  }}>
                  <Shape colour={s.colour} label />
                  <span className="truncate">{s.name}</span>
                  <span className="score">{formatScore(s.score)}</span>
                </a>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function focusMark(box: HTMLElement | null, id: string): void {
  box?.querySelector<HTMLElement>(`[data-mark="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
}

/** Beside the marker, on the side where there is room. */
function TipBox({ mark, x, y, width, height }: { mark: Mark; x: number; y: number; width: number; height: number }) {
  const ref = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ w: 220, h: 90 });
  useLayoutEffect(() => {
    if (ref.current) setSize({ w: ref.current.offsetWidth, h: ref.current.offsetHeight });
  }, [mark]);
  const left = x + 20 + size.w < width ? x + 20 : Math.max(8, x - 20 - size.w);
  const top = Math.min(Math.max(8, y - size.h / 2), Math.max(8, height - size.h - 8));
  return (
    <div ref={ref} className="map-tip" aria-hidden style={{ transform: `translate(${left}px, ${top}px)` }}>
      <Tip mark={mark} />
    </div>
  );
}

export function Icon({ d }: { d: string }) {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden>
      <path d={d} />
    </svg>
  );
}
