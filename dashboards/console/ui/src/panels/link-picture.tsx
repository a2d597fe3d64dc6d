import { Link } from "wouter";
import type { LinkRegional, LinkSummary } from "../api/types";
import { countsText, StackedBar } from "../components/bars";
import { Shape } from "../components/shape";
import { colourName } from "../lib/colour";
import { formatCount, formatScore, plural } from "../lib/format";
import { colourOf, formatMillis, formatRate, formatShare, formatTimes, thicknessOf } from "../lib/links";

const ROW = 46;
const WIDTH = 120;
const DASHES = { green: undefined, orange: "10 5", red: "4 4", grey: "1 5" } as const;

type Row = LinkSummary & { value: string; more?: boolean };

interface Props {
  regional: LinkRegional;
  /** The column that groups are of, as a heading. */
  by: string;
  /** The address of the same page for what a query means. */
  hrefOf: (query: string) => string;
}

/** A regional, the groups of its sites, and the lines between them. */
export function LinkPicture({ regional: r, by, hrefOf }: Props) {
  const name = r.name || "Never connected";
  const rows: Row[] = r.groups.map((g) => ({ ...g }));
  if (r.more) rows.push({ ...r.more, value: "all others", more: true });
  const height = Math.max(1, rows.length) * ROW;
  return (
    <section className={r.name === "" ? "card link-never" : "card"} aria-label={`Regional ${name}`} data-regional={r.name}>
      <header>
        <h2 className="row nowrap">
          <Shape colour={colourOf(r.counts)} size={14} />
          <Link href={hrefOf(r.query)}>{name}</Link>
        </h2>
        <span className="muted small">
          {plural(r.sites, "site")}
          {r.sent !== null && ` · ${formatRate(r.sent)} in · ${formatRate(r.received)} out · ${formatTimes(r.reconnects)} reconnects in an hour`}
        </span>
      </header>
      {r.name === "" ? (
        // There is no link to draw, nor a figure of one.
        <ul className="link-none" aria-label={`Groups by ${by}`}>
          {rows.map((g) => (
            <li key={g.value + String(g.more)} data-group={g.value}>
              <Group group={g} hrefOf={hrefOf} />
            </li>
          ))}
        </ul>
      ) : (
        <div className="link-picture" style={{ minHeight: height }}>
          <div className="link-hub" aria-hidden>
            <span>
              <b>{formatCount(r.sites)}</b>
              <small>{formatMillis(r.roundTrip)}</small>
            </span>
          </div>
          <svg aria-hidden width="100%" height={height} viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none">
            {rows.map((g, i) => {
              const colour = colourOf(g.counts);
              const y = i * ROW + ROW / 2;
              return <path key={g.value + String(g.more)} className={`link-line ${colour}`} d={`M0 ${height / 2} C${WIDTH / 2} ${height / 2} ${WIDTH / 2} ${y} ${WIDTH} ${y}`} strokeWidth={thicknessOf(g.sites)} strokeDasharray={DASHES[colour]} vectorEffect="non-scaling-stroke" />;
            })}
          </svg>
          <ul aria-label={`Groups by ${by}`}>
            {rows.map((g) => (
              <li key={g.value + String(g.more)} style={{ height: ROW }} data-group={g.value}>
                <Group group={g} hrefOf={hrefOf} />
                <span className="link-figures num small">
                  <span title="Median round trip">{formatMillis(g.roundTrip)}</span>
                  <span className="muted" title="Median loss">
                    {formatShare(g.loss)}
                    {g.loss !== null && " lost"}
                  </span>
                </span>
                <span className="link-figures num small muted">
                  <span title="What its sites send to the regional, all together">
                    <span aria-hidden>↑ </span>
                    {formatRate(g.sent)}
                    <span className="visually-hidden"> sent</span>
                  </span>
                  <span title="What its sites receive from the regional, all together">
                    <span aria-hidden>↓ </span>
                    {formatRate(g.received)}
                    <span className="visually-hidden"> received</span>
                  </span>
                </span>
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

/** The name of a group and how well its links are. */
function Group({ group: g, hrefOf }: { group: Row; hrefOf: Props["hrefOf"] }) {
  return (
    <div className="link-group">
      <span className="row nowrap truncate">
        <Shape colour={colourOf(g.counts)} size={11} />
        {g.query ? (
          <Link href={hrefOf(g.query)} className="truncate" aria-label={`${g.value || "none"}: ${plural(g.sites, "site")}, ${countsText(g.counts)}, worst connectivity ${formatScore(g.worst)}`} title={`${colourName[colourOf(g.counts)]}: ${countsText(g.counts)}`}>
            {g.value || "none"}
          </Link>
        ) : (
          <span className="truncate">{g.value}</span>
        )}
        <span className="muted small">{formatCount(g.sites)}</span>
      </span>
      <StackedBar counts={g.counts} height={6} />
    </div>
  );
}
