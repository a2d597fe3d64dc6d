import { type KeyboardEvent, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { nearestInDirection } from "../lib/cluster";
import { colourRank } from "../lib/colour";
import { siteKey } from "../lib/site";
import { useBaseMap } from "./base";
import { holds, type Mark, Marker, reachOf, type Spot } from "./markers";
import { staysTogether, useMarks, usePoints } from "./marks";
import { HEALTH, type Paint } from "./paint";
import { PlaceList, TipBox, ZoomTools } from "./overlays";
import { boundsOf, fit, MAX_SCALE, useView } from "./view";
import { project, type Transform } from "./world";

interface Props {
  /** Sites with a place. */
  sites: readonly Spot[];
  onOpen?: (s: Spot) => void;
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
  /** By what they are coloured; health without it. */
  paint?: Paint;
}

export function WorldMap({ sites: all, onOpen, lit = null, onLit, turned, remember, still = false, label, paint = HEALTH }: Props) {
  // The order must not depend on the colours, else every change would rebuild the clusters.
  const sites = useMemo(() => [...all].sort((a, b) => (siteKey(a) < siteKey(b) ? -1 : 1)), [all]);
  const points = usePoints(sites);
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const stack = useRef<{ view: Transform; mark: string }[]>([]);
  const focusNext = useRef<ReadonlySet<string> | null>(null);
  const held = useRef<string | null>(null); // the marker that has the focus; the id is also the key of a site in it
  const [tip, setTip] = useState<string | null>(null);
  const [place, setPlace] = useState<readonly Spot[] | null>(null);
  const onHand = useCallback(() => {
    stack.current = []; // there is nothing to go back to
    focusNext.current = null;
  }, []);
  const { view, minScale, isMoving, moveTo, home } = useView(box, points, { remember, still, onHand });
  const { marks, visible } = useMarks(sites, points, view, minScale, paint.kinds.length);
  const discs = useMemo(() => visible.map((v) => ({ x: v.px, y: v.py, r: reachOf(v.mark) })), [visible]);
  const { missing } = useBaseMap(box, canvas, view, discs);

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
      if (staysTogether(spread, v.transform.k)) return setPlace([...m.sites].sort((a, b) => colourRank(a.colour) - colourRank(b.colour) || (a.score ?? 101) - (b.score ?? 101) || (a.name < b.name ? -1 : 1)));
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
    if (!wanted || isMoving()) return;
    focusNext.current = null;
    const target = visible.find((v) => v.mark.sites.some((s) => wanted.has(siteKey(s))));
    if (target) focusMark(box.current, target.mark.id);
  }, [visible, isMoving]);

  const zoomBy = (f: number) => {
    if (!view) return;
    const k = Math.min(MAX_SCALE, Math.max(minScale, view.transform.k * f));
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
        <Marker key={mark.id} mark={mark} paint={paint} px={px} py={py} lit={holds(mark, lit)} onOpen={open}
          turned={turned !== undefined && turned.size > 0 && mark.sites.some((s) => turned.has(siteKey(s)))} />
      ))}
      {shown && view && !still && <TipBox mark={shown.mark} paint={paint} x={shown.px} y={shown.py} width={view.width} height={view.height} />}
      {missing && (
        <div className="map-empty">
          <div className="note small">The map's outlines could not be loaded; the sites are in their places.</div>
        </div>
      )}
      <span className="map-credit">Natural Earth, GeoNames</span>
      {!still && <ZoomTools zoomBy={zoomBy} showAll={showAll} />}
      {place && <PlaceList sites={place} onOpen={onOpen} onClose={() => setPlace(null)} />}
    </div>
  );
}

function focusMark(box: HTMLElement | null, id: string): void {
  box?.querySelector<HTMLElement>(`[data-mark="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
}
