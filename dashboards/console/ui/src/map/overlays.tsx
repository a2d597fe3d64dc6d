// What lies over the map: its buttons, the tip of a marker, the sites that share one place.

import { useLayoutEffect, useRef, useState } from "react";
import { Icon } from "../components/icon";
import { Shape } from "../components/shape";
import { formatCount, formatScore } from "../lib/format";
import { siteKey, sitePath } from "../lib/site";
import { type Mark, type Spot, Tip } from "./markers";
import type { Paint } from "./paint";

export function ZoomTools({ zoomBy, showAll }: { zoomBy: (factor: number) => void; showAll: () => void }) {
  return (
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
  );
}

/** Sites so close together that no scale takes them apart. */
export function PlaceList({ sites, onOpen, onClose }: { sites: readonly Spot[]; onOpen: ((s: Spot) => void) | undefined; onClose: () => void }) {
  return (
    <section className="card map-place" aria-label="Sites at this place">
      <header>
        <h2>{formatCount(sites.length)} sites at one place</h2>
        <button type="button" className="button quiet icon" aria-label="Close" onClick={onClose}>
          <Icon d="M4 4l8 8M12 4l-8 8" />
        </button>
      </header>
      <ul>
        {sites.map((s) => (
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
  );
}

/** Beside the marker, on the side where there is room. */
export function TipBox({ mark, paint, x, y, width, height }: { mark: Mark; paint: Paint; x: number; y: number; width: number; height: number }) {
  const ref = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ w: 220, h: 90 });
  useLayoutEffect(() => {
    if (ref.current) setSize({ w: ref.current.offsetWidth, h: ref.current.offsetHeight });
  }, [mark]);
  const left = x + 20 + size.w < width ? x + 20 : Math.max(8, x - 20 - size.w);
  const top = Math.min(Math.max(8, y - size.h / 2), Math.max(8, height - size.h - 8));
  return (
    <div ref={ref} className="map-tip" aria-hidden style={{ transform: `translate(${left}px, ${top}px)` }}>
      <Tip mark={mark} paint={paint} />
    </div>
  );
}
