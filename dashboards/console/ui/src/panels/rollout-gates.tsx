import { Link } from "wouter";
import type { GateReading, RolloutDetail } from "../api/types";
import { Verdict } from "../components/rollout-bits";
import { Ago } from "../components/time";
import { DASH, formatCount } from "../lib/format";
import { hasEnded } from "../lib/rollouts";
import { sitePath } from "../lib/site";
import { formatDuration, zoned } from "../lib/time";

/** What the gates of the current wave say, on what evidence. */
export function RolloutGates({ rollout: r }: { rollout: RolloutDetail }) {
  const ended = hasEnded(r.phase);
  return (
    <section className="card" aria-label="Gates">
      <header>
        <h2>Gates</h2>
        <span className="muted small">{ended ? "as they were read last" : r.wave > 0 ? `all have to hold, of wave ${r.wave}` : ""}</span>
      </header>
      {r.gates.length === 0 ? (
        <p className="body muted">{ended ? (r.wave > 0 ? "None is read any more; the decisions say what they read." : "None was read.") : "They are read once the first sites have the change."}</p>
      ) : (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of gates">
          <table className="stacks gates">
            <thead>
              <tr>
                <th scope="col">Gate</th>
                <th scope="col">Says</th>
                <th scope="col">Reading</th>
                <th scope="col">Evidence</th>
              </tr>
            </thead>
            <tbody>
              {r.gates.map((g) => (
                <tr key={g.name} data-gate={g.name}>
                  <th scope="row" className="vs-name">
                    {g.name}
                  </th>
                  <td data-label="Says">
                    <Verdict verdict={g.verdict} />
                  </td>
                  <td data-label="Reading" className="why-cell">
                    {zoned(g.text)}
                    {(g.value || g.limit) && (
                      <div className="muted small">
                        measured {g.value || DASH}
                        {g.limit && <>, limit {g.limit}</>}
                      </div>
                    )}
                    {g.worst.length > 0 && (
                      <div className="small">
                        worst:{" "}
                        {g.worst.map((s, i) => (
                          <span key={s}>
                            {i > 0 && ", "}
                            <Link href={sitePath({ tenant: r.tenant, name: s })}>{s}</Link>
                          </span>
                        ))}
                      </div>
                    )}
                  </td>
                  <td data-label="Evidence" className="nowrap">
                    <Evidence of={g} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Evidence({ of: g }: { of: GateReading }) {
  if (g.ofSites === 0 && g.ofSeconds === 0) return <>{DASH}</>;
  return (
    <>
      {g.ofSites > 0 && (
        <div>
          {formatCount(g.sites)} of {formatCount(g.ofSites)} sites
        </div>
      )}
      {g.ofSeconds > 0 && (
        <div className="muted small row" style={{ gap: 6 }}>
          <i aria-hidden className="meter" style={{ "--v": Math.min(100, (100 * g.seconds) / g.ofSeconds) } as React.CSSProperties} />
          {formatDuration(g.seconds)} of {formatDuration(g.ofSeconds)}
        </div>
      )}
    </>
  );
}

/** What was decided, the newest first. */
export function RolloutDecisions({ rollout: r }: { rollout: RolloutDetail }) {
  return (
    <section className="card" aria-label="Decisions">
      <header>
        <h2>Decisions</h2>
        {r.decisions.length > 0 && <span className="muted small">the newest first</span>}
      </header>
      {r.decisions.length === 0 ? (
        <p className="body muted">Nothing was decided yet.</p>
      ) : (
        <ol className="decisions body">
          {[...r.decisions].reverse().map((d, i) => (
            <li key={r.decisions.length - i} data-what={d.what} className={/Fail|Roll|Abort/.test(d.what) ? "bad" : /Pass|Complete/.test(d.what) ? "good" : undefined}>
              <div>
                <strong>{zoned(d.text || d.what)}</strong>
              </div>
              <div className="muted small">
                <Ago time={d.at} /> · <code>{d.what}</code>
                {d.by && <> · by {d.by}</>}
              </div>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
