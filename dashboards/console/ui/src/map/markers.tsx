import { memo } from "react";
import type { Colour, Counts, Site } from "../api/types";
import { countsText } from "../components/bars";
import { Shape, ShapePath } from "../components/shape";
import { Ago } from "../components/time";
import { COLOURS, colourName, colourRank, worstColour } from "../lib/colour";
import { formatCount, formatScore } from "../lib/format";
import { headline, siteKey, sitePath } from "../lib/site";

/** What a marker stands for: a site, or several. */
export interface Mark {
  id: string;
  /** World units. */
  x: number;
  y: number;
  sites: readonly Site[];
  counts: Counts;
  worst: Colour;
}

export function markOf(id: string, x: number, y: number, sites: readonly Site[]): Mark {
  const counts: Counts = { green: 0, orange: 0, red: 0, grey: 0 };
  for (const s of sites) counts[s.colour in counts ? s.colour : "grey"]++;
  return { id, x, y, sites, counts, worst: worstColour(counts) };
}

/** Worst first, then the larger one. */
export const compareMarks = (a: Mark, b: Mark): number =>
  colourRank(a.worst) - colourRank(b.worst) || b.sites.length - a.sites.length || (a.id < b.id ? -1 : 1);

export const clusterSize = (n: number): number => Math.min(54, 30 + 6 * Math.log10(n) * 2);

export function labelOf(m: Mark): string {
  const s = m.sites[0];
  if (m.sites.length === 1 && s) {
    const score = s.score === null ? "no score" : `score ${formatScore(s.score)}`;
    return `${s.name}, ${colourName[s.colour].toLowerCase()}, ${score}${s.maintenance ? ", in maintenance" : ""}: ${headline(s)}`;
  }
  return `${formatCount(m.sites.length)} sites: ${countsText(m.counts)}. Opens the cluster`;
}

interface Props {
  mark: Mark;
  px: number;
  py: number;
  lit: boolean;
  turned: boolean;
  onOpen: (m: Mark, byKeyboard: boolean) => void;
}

/** One marker: a link to its site, or a button that opens the cluster. */
export const Marker = memo(function Marker({ mark, px, py, lit, turned, onOpen }: Props) {
  const single = mark.sites.length === 1 ? mark.sites[0] : undefined;
  const size = single ? 26 : clusterSize(mark.sites.length);
  const common = {
    "data-mark": mark.id,
    "data-colour": mark.worst,
    "aria-label": labelOf(mark),
    style: {
      transform: `translate(${px - size / 2}px, ${py - size / 2}px)`,
      zIndex: 10 * (4 - colourRank(mark.worst)) + (lit ? 500 : 0),
      ...(single ? {} : { width: size, height: size }),
    },
  };
  const state = `${lit ? " lit" : ""}${turned ? " turned" : ""}`;
  if (single) {
    return (
      <a {...common} href={sitePath(single)} className={`marker site${single.maintenance ? " maintenance" : ""}${state}`} draggable={false}
        onClick={(e) => {
          if (e.metaKey || e.ctrlKey || e.shiftKey) return; // the browser's own: a new tab
          e.preventDefault();
          onOpen(mark, e.detail === 0);
        }}>
        <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden>
          <ShapePath colour={single.colour} />
        </svg>
      </a>
    );
  }
  return (
    <button {...common} type="button" className={`marker cluster${state}`} onClick={(e) => onOpen(mark, e.detail === 0)}>
      <Donut counts={mark.counts} total={mark.sites.length} worst={mark.worst} size={size} />
    </button>
  );
}, sameMarker);

// Sites are new objects after each refresh; a marker changes only with what it shows.
function sameMarker(a: Props, b: Props): boolean {
  if (a.px !== b.px || a.py !== b.py || a.lit !== b.lit || a.turned !== b.turned || a.onOpen !== b.onOpen) return false;
  return a.mark === b.mark;
}

function Donut({ counts, total, worst, size }: { counts: Counts; total: number; worst: Colour; size: number }) {
  const stroke = 5;
  const r = size / 2 - stroke / 2 - 1;
  const c = 2 * Math.PI * r;
  let from = 0; // at three o'clock, below the badge, so that the worst is never under it
  return (
    <svg width={size} height={size} viewBox={`0 0 ${size} ${size}`} aria-hidden>
      <circle cx={size / 2} cy={size / 2} r={size / 2} fill="var(--surface)" />
      {COLOURS.map((k) => {
        if (counts[k] === 0) return null;
        const part = (counts[k] / total) * c;
        const gap = part < c ? Math.min(1.5, part / 3) : 0;
        const el = (
          <circle key={k} cx={size / 2} cy={size / 2} r={r} fill="none" stroke={`var(--${k})`} strokeWidth={stroke}
            strokeDasharray={`${part - gap} ${c - part + gap}`} strokeDashoffset={-from} transform={`rotate(-8 ${size / 2} ${size / 2})`}
            {...(k === "grey" ? { strokeOpacity: 0.6 } : {})} />
        );
        from += part;
        return el;
      })}
      <text x={size / 2} y={size / 2}>
        {total > 9999 ? `${Math.round(total / 1000)}k` : total}
      </text>
      {worst !== "green" && (
        <g transform={`translate(${size - 13} -1)`}>
          <circle cx="7" cy="7" r="8" fill="var(--surface)" />
          <g transform="translate(0.6 0.6) scale(0.8)">
            <ShapePath colour={worst} />
          </g>
        </g>
      )}
    </svg>
  );
}

/** What hovering or focusing a marker tells; the marker's label says the same aloud. */
export function Tip({ mark }: { mark: Mark }) {
  const s = mark.sites.length === 1 ? mark.sites[0] : worstOf(mark.sites);
  if (!s) return null;
  return (
    <>
      {mark.sites.length > 1 && (
        <div style={{ marginBottom: 6 }}>
          <strong>{formatCount(mark.sites.length)} sites</strong>
          <div className="muted">{countsText(mark.counts)}</div>
        </div>
      )}
      <div className="name">
        <Shape colour={s.colour} size={12} />
        <span className="truncate">{s.name}</span>
        <span className="score">{formatScore(s.score)}</span>
      </div>
      <div>{headline(s)}</div>
      <div className="muted">
        {[s.region, s.place?.address].filter(Boolean).join(" · ")}
        {s.maintenance && <> · in maintenance</>}
      </div>
      <div className="muted">
        {s.phase}
        {s.phase !== "Online" && (
          <>
            , seen <Ago time={s.lastSeen} />
          </>
        )}
      </div>
    </>
  );
}

function worstOf(sites: readonly Site[]): Site | undefined {
  let worst: Site | undefined;
  for (const s of sites) {
    if (!worst || colourRank(s.colour) < colourRank(worst.colour) || (s.colour === worst.colour && (s.score ?? 101) < (worst.score ?? 101))) worst = s;
  }
  return worst;
}

export const holds = (m: Mark, key: string | null): boolean => key !== null && m.sites.some((s) => siteKey(s) === key);
