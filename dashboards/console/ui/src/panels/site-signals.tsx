import type { Signal } from "../api/types";
import { Shape } from "../components/shape";
import { Ago } from "../components/time";
import { dimensionName, DIMENSIONS } from "../lib/colour";
import { DASH, formatValue, plural } from "../lib/format";

/** Every signal of the site, with its bounds; those that can't be known say why. */
export function SignalsTable({ signals }: { signals: readonly Signal[] }) {
  const failing = signals.filter((s) => s.error).length;
  const unknown = signals.filter((s) => !s.known && !s.error).length;
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
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of signals">
          <table className="signals">
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
            {DIMENSIONS.map((d) => {
              const rows = signals.filter((s) => s.dimension === d);
              return (
                rows.length > 0 && (
                  <tbody key={d}>
                    <tr className="group">
                      <th scope="rowgroup" colSpan={7}>
                        {dimensionName[d]}
                      </th>
                    </tr>
                    {rows.map((s) => (
                      <Row key={s.name} signal={s} />
                    ))}
                  </tbody>
                )
              );
            })}
          </table>
        </div>
      )}
    </section>
  );
}

function Row({ signal: s }: { signal: Signal }) {
  const lost = s.known && s.score !== null && s.score < 1;
  return (
    <tr data-signal={s.name}>
      <td>
        <span className="row" style={{ gap: 6 }}>
          <Shape colour={!s.known ? "grey" : s.score === 0 ? "red" : lost ? "orange" : "green"} size={10} />
          <span className="mono">{s.name}</span>
          {s.critical && (
            <span className="chip" title="When it is at its bad bound, it caps the dimension and the site at 39">
              critical
            </span>
          )}
        </span>
        {s.error ? <div className="error small">{s.error}</div> : s.source && <div className="muted small source">{s.source}</div>}
      </td>
      <td className="num">{s.known ? <b>{formatValue(s.value, s.unit)}</b> : <span className="muted">{s.error ? "failed" : "no data"}</span>}</td>
      <td className="nowrap">
        {s.known && s.score !== null ? (
          <>
            <span className="meter" aria-hidden style={{ "--v": s.score * 100 } as React.CSSProperties} /> {Math.round(s.score * 100)}%
          </>
        ) : (
          DASH
        )}
      </td>
      <td className="num muted">{formatValue(s.good, s.unit)}</td>
      <td className="num muted">{formatValue(s.bad, s.unit)}</td>
      <td className="num muted">{s.weight === 0 ? "shown only" : formatValue(s.weight)}</td>
      <td className="num muted">{s.known ? <Ago time={s.asOf} none={DASH} /> : DASH}</td>
    </tr>
  );
}
