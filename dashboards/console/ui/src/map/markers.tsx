import { memo } from "react";
import { useSiteSummary } from "../api/map-queries";
import type { Colour, Counts } from "../api/types";
import { countsText } from "../components/bars";
import { Shape, ShapePath } from "../components/shape";
import { Ago } from "../components/time";
import { colourName, colourRank, worstColour } from "../lib/colour";
import { formatCount, formatScore } from "../lib/format";
import { siteKey, sitePath, type SiteRef } from "../lib/site";
import { healthKind, type Kind, type Paint } from "./paint";

/** A site as the map knows it. */
export interface Spot extends SiteRef {
  colour: Colour;
  score: number | null;
  /** What goes on; null: nothing. */
  maintenance: unknown;
  place: { latitude: number; longitude: number } | null;
  /** Which of the paint's kinds it is of; without one its colour decides. */
  kind?: number;
}

const kindOf = (s: Spot): number => s.kind ?? healthKind(s.colour);

/** What a marker stands for: a site, or several. */
export interface Mark {
  id: string;
  /** World units. */
  x: number;
  y: number;
  sites: readonly Spot[];
  counts: Counts;
  worst: Colour;
  /** How many are of each kind of the paint. */
  kinds: readonly number[];
}

export function markOf(id: string, x: number, y: number, sites: readonly Spot[], kinds: number): Mark {
  const counts: Counts = { green: 0, orange: 0, red: 0, grey: 0 };
  const of = new Array<number>(kinds).fill(0);
  for (const s of sites) {
    counts[s.colour in counts ? s.colour : "grey"]++;
    of[kindOf(s)]!++;
  }
  return { id, x, y, sites, counts, worst: worstColour(counts), kinds: of };
}

/** Worst first, then the larger one. */
export const compareMarks = (a: Mark, b: Mark): number =>
  colourRank(a.worst) - colourRank(b.worst) || b.sites.length - a.sites.length || (a.id < b.id ? -1 : 1);

/** Across, in pixels. */
export const LARGEST_CLUSTER = 44;
export const clusterSize = (n: number): number => Math.min(LARGEST_CLUSTER, 30 + 12 * Math.log10(n));

/** A count that fits into the ring; the label and the tip have it whole. */
export const shortCount = (n: number): string => (n > 9949 ? `${Math.round(n / 1000)}k` : n > 999 ? `${(n / 1000).toFixed(1)}k` : String(n));

/** How many are of what, where that is not health. */
const kindsText = (m: Mark, p: Paint): string => p.kinds.flatMap((k, i) => (m.kinds[i]! > 0 ? `${formatCount(m.kinds[i]!)} ${k.label}` : [])).join(", ");

export function labelOf(m: Mark, p: Paint): string {
  const s = m.sites[0];
  const painted = p.of ? `; ${p.of}: ` : "";
  if (m.sites.length === 1 && s) {
    const score = s.score === null ? "no score" : `score ${formatScore(s.score)}`;
    return `${s.name}, ${colourName[s.colour].toLowerCase()}, ${score}${s.maintenance ? ", in maintenance" : ""}${painted}${painted && p.kinds[kindOf(s)]?.label}`;
  }
  return `${formatCount(m.sites.length)} sites: ${countsText(m.counts)}${painted}${painted && kindsText(m, p)}. Opens the cluster`;
}

/** How far what is drawn of a marker reaches from its middle, in pixels. */
export const reachOf = (m: Mark): number => (m.sites.length === 1 ? 8 : clusterSize(m.sites.length) / 2 + 2);

interface Props {
  mark: Mark;
  paint: Paint;
  px: number;
  py: number;
  lit: boolean;
  turned: boolean;
  onOpen: (m: Mark, byKeyboard: boolean) => void;
}

/** One marker: a link to its site, or a button that opens the cluster. */
export const Marker = memo(function Marker({ mark, paint, px, py, lit, turned, onOpen }: Props) {
  const single = mark.sites.length === 1 ? mark.sites[0] : undefined;
  const size = single ? 26 : clusterSize(mark.sites.length);
  const common = {
    "data-mark": mark.id,
    "data-colour": mark.worst,
    "aria-label": labelOf(mark, paint),
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
          <Dot kind={paint.kinds[kindOf(single)]} colour={single.colour} />
        </svg>
      </a>
    );
  }
  return (
    <button {...common} type="button" className={`marker cluster${state}`} onClick={(e) => onOpen(mark, e.detail === 0)}>
      <Donut paint={paint} counts={mark.kinds} total={mark.sites.length} worst={mark.worst} size={size} />
    </button>
  );
}, sameMarker);

// Sites are new objects after each refresh; a marker changes only with what it shows.
function sameMarker(a: Props, b: Props): boolean {
  if (a.paint !== b.paint || a.px !== b.px || a.py !== b.py || a.lit !== b.lit || a.turned !== b.turned || a.onOpen !== b.onOpen) return false;
  return a.mark === b.mark;
}

/** A site alone: the shape of its colour, or a dot of its kind. */
function Dot({ kind, colour }: { kind: Kind | undefined; colour: Colour }) {
  if (!kind || kind.health) return <ShapePath colour={colour} />;
  return <circle cx="8" cy="8" r="5.6" fill={kind.colour} stroke="var(--surface)" strokeWidth="1" />;
}

function Donut({ paint, counts, total, worst, size }: { paint: Paint; counts: readonly number[]; total: number; worst: Colour; size: number }) {
  const stroke = 5;
  const r = size / 2 - stroke / 2 - 1;
  const c = 2 * Math.PI * r;
  let from = 0; // at three o'clock, below the badge, so that the worst is never under it
  return (
    <svg width={size} height={size} viewBox={`0 0 ${size} ${size}`} aria-hidden>
      <circle cx={size / 2} cy={size / 2} r={size / 2} fill="var(--surface)" />
      {paint.kinds.map((k, i) => {
        const n = counts[i] ?? 0;
        if (n === 0) return null;
        const part = (n / total) * c;
        const gap = part < c ? Math.min(1.5, part / 3) : 0;
        const el = (
          <circle key={k.label} cx={size / 2} cy={size / 2} r={r} fill="none" stroke={k.colour} strokeWidth={stroke}
            strokeDasharray={`${part - gap} ${c - part + gap}`} strokeDashoffset={-from} transform={`rotate(-8 ${size / 2} ${size / 2})`}
            {...(k.health === "grey" ? { strokeOpacity: 0.6 } : {})} />
        );
        from += part;
        return el;
      })}
      <text x={size / 2} y={size / 2}>
        {shortCount(total)}
      </text>
      {paint.kinds[0]?.health && worst !== "green" && (
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
export function Tip({ mark, paint }: { mark: Mark; paint: Paint }) {
  const s = mark.sites.length === 1 ? mark.sites[0] : worstOf(mark.sites);
  const row = useSiteSummary(s);
  if (!s) return null;
  return (
    <>
      {mark.sites.length > 1 && (
        <div style={{ marginBottom: 6 }}>
          <strong>{formatCount(mark.sites.length)} sites</strong>
          <div className="muted">{countsText(mark.counts)}</div>
          {paint.of && (
            <div className="muted">
              {paint.of}: {kindsText(mark, paint)}
            </div>
          )}
        </div>
      )}
      <div className="name">
        <Shape colour={s.colour} size={12} />
        <span className="truncate">{s.name}</span>
        <span className="score">{formatScore(s.score)}</span>
      </div>
      {paint.of && mark.sites.length === 1 && (
        <div>
          {paint.of}: {paint.kinds[kindOf(s)]?.label}
        </div>
      )}
      <div>{row ? row.headline : "…"}</div>
      <div className="muted">
        {row?.where}
        {s.maintenance ? <> · in maintenance</> : null}
      </div>
      {row && row.phase !== "Online" && (
        <div className="muted">
          {row.phase}, seen <Ago time={row.lastSeen} />
        </div>
      )}
    </>
  );
}

function worstOf(sites: readonly Spot[]): Spot | undefined {
  let worst: Spot | undefined;
  for (const s of sites) {
    if (!worst || colourRank(s.colour) < colourRank(worst.colour) || (s.colour === worst.colour && (s.score ?? 101) < (worst.score ?? 101))) worst = s;
  }
  return worst;
}

export const holds = (m: Mark, key: string | null): boolean => key !== null && m.sites.some((s) => siteKey(s) === key);
