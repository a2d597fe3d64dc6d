import { useState } from "react";
import { Link } from "wouter";
import type { Reason, Signal } from "../api/types";
import { Shape } from "../components/shape";
import { Ago } from "../components/time";
import { dimensionName, DIMENSIONS } from "../lib/colour";
import { signalPath, type SiteRef } from "../lib/site";
import { DASH, doNotApply, formatValue, plural } from "../lib/format";
import { zoned } from "../lib/time";

const COLUMNS = 7;

/** Every signal of the site, with its bounds: those that cost points or are not known first; those that are well, and those that do not apply, folded away. */
export function SignalsTable({ site, signals, reasons }: { site: SiteRef; signals: readonly Signal[]; reasons: readonly Reason[] }) {
  const [all, setAll] = useState(false);
  const [more, setMore] = useState(false);
  const failing = signals.filter((s) => s.applies && s.error).length;
  const unknown = signals.filter((s) => s.applies && !s.known && !s.error).length;
  const { losing, dark, well, absent } = sorted(signals, reasons);
  return (
    <section className="card" aria-label="Signals">
      <header>
        <h2>Signals</h2>
        <span className="row small muted">
          {failing > 0 && <span className="chip warn">{plural(failing, "query fails", "queries fail")}</span>}
          {unknown > 0 && <span>{plural(unknown, "signal")} without data here</span>}
        </span>
      </header>
      {signals.length === 0 ? (
        <p className="body muted">No health policy has signals for this site.</p>
      ) : (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of signals" hidden={losing.length + dark.length === 0 && !more && !all}>
          <table className="signals stacks">
            <thead>
              <tr>
                <th scope="col">Signal</th>
                <th scope="col" className="num">
                  Value
                </th>
                <th scope="col">Score</th>
                <th scope="col" className="num">
                  Good
                </th>
                <th scope="col" className="num">
                  Bad
                </th>
                <th scope="col" className="num">
                  Weight
                </th>
                <th scope="col" className="num">
                  As of
                </th>
              </tr>
            </thead>
            <Group title="Cost points" rows={losing} site={site} />
            <Group title="Unknown" rows={dark} site={site} />
            {more && DIMENSIONS.map((d) => <Group key={d} title={`${dimensionName[d]}, well`} rows={well.filter((s) => s.dimension === d)} site={site} />)}
            {all && <Group title="Do not apply" rows={absent} site={site} />}
          </table>
        </div>
      )}
      {well.length > 0 && (
        <p className="body small row">
          <span className="muted">{plural(well.length, "signal is well", "signals are well")}.</span>
          <button type="button" className="button quiet" aria-expanded={more} onClick={() => setMore(!more)}>
            {more ? "Fold them" : "Show all"}
          </button>
        </p>
      )}
      {absent.length > 0 && (
        <p className="body small row">
          <span className="muted">{doNotApply(absent.length)}: what they measure was not found in the last day.</span>
          <button type="button" className="button quiet" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Hide them" : "Show them"}
          </button>
        </p>
      )}
    </section>
  );
}

/** Signals in the order of what they cost; among equals in the policy's. */
function sorted(signals: readonly Signal[], reasons: readonly Reason[]) {
  const lost = new Map(reasons.map((r) => [r.signal, r.pointsLost]));
  const is = (s: Signal) => (!s.applies ? "absent" : !s.known ? "dark" : s.score !== null && s.score < 1 ? "losing" : "well");
  const of = (what: ReturnType<typeof is>) => signals.filter((s) => is(s) === what);
  return {
    losing: of("losing").sort((a, b) => (lost.get(b.name) ?? 0) - (lost.get(a.name) ?? 0) || (a.score ?? 1) - (b.score ?? 1)),
    dark: of("dark"),
    well: of("well"),
    absent: of("absent"),
  };
}

function Group({ title, rows, site }: { title: string; rows: readonly Signal[]; site: SiteRef }) {
  if (rows.length === 0) return null;
  return (
    <tbody>
      <tr className="group">
        <th scope="rowgroup" colSpan={COLUMNS}>
          {title}
        </th>
      </tr>
      {rows.map((s) => (
        <Row key={s.name} signal={s} site={site} />
      ))}
    </tbody>
  );
}

function Row({ signal: s, site }: { signal: Signal; site: SiteRef }) {
  const lost = s.known && s.score !== null && s.score < 1;
  return (
    <tr data-signal={s.name}>
      <td className="vs-name">
        <span className="row" style={{ gap: 6 }}>
          <Shape colour={!s.known ? "grey" : s.score === 0 ? "red" : lost ? "orange" : "green"} size={10} />
          <Link className="mono" href={signalPath(site, s.name)}>
            {s.name}
          </Link>
          {s.critical && (
            <span className="chip" title="When it is at its bad bound, it caps the dimension and the site at 39">
              critical
            </span>
          )}
        </span>
        {s.applies && s.error ? <div className="error small">{zoned(s.error)}</div> : s.source && <div className="muted small source">{s.source}</div>}
      </td>
      <td className="num" data-label="Value">{s.known ? <b>{formatValue(s.value, s.unit)}</b> : <span className="muted">{!s.applies ? `no ${s.pack} here` : s.error ? "failed" : "no data"}</span>}</td>
      <td className="nowrap" data-label="Score">
        {s.known && s.score !== null ? (
          <>
            <span className="meter" aria-hidden style={{ "--v": s.score * 100 } as React.CSSProperties} /> {Math.round(s.score * 100)}%
          </>
        ) : (
          DASH
        )}
      </td>
      <td className="num muted" data-label="Good">{formatValue(s.good, s.unit)}</td>
      <td className="num muted" data-label="Bad">{formatValue(s.bad, s.unit)}</td>
      <td className="num muted" data-label="Weight">{s.weight === 0 ? "shown only" : formatValue(s.weight)}</td>
      <td className="num muted" data-label="As of">{s.known ? <Ago time={s.asOf} none={DASH} /> : DASH}</td>
    </tr>
  );
}
