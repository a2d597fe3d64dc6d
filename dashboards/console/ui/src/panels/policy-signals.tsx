import { Fragment, useState } from "react";
import type { HealthPolicyDetail, PolicySpecSignal } from "../api/types";
import { dimensionName, DIMENSIONS } from "../lib/colour";
import { formatCount, formatValue } from "../lib/format";
import { type Edits, faultOf, type Field, FIELDS, quantity } from "../lib/policy";

interface Props {
  detail: HealthPolicyDetail;
  /** undefined: nothing is being edited. */
  edits: Edits | undefined;
  onEdit: (e: Edits) => void;
}

const LABELS: Record<Field, string> = { good: "Good", bad: "Bad", weight: "Weight" };

/** The signals of a policy with bounds and queries; the bounds are fields while they are edited. */
export function PolicySignals({ detail: { policy, spec }, edits, onEdit }: Props) {
  const [text, setText] = useState("");
  const fares = new Map(policy.signals.map((s) => [s.name, s]));
  const fits = (s: PolicySpecSignal) => `${s.name} ${s.pack ?? ""} ${s.source ?? ""} ${s.query}`.toLowerCase().includes(text.trim().toLowerCase());
  const shown = spec.signals.filter(fits);
  const set = (signal: string, field: Field, value: string) => onEdit({ ...edits, [signal]: { ...edits?.[signal], [field]: value } });
  return (
    <section className="card" aria-label="Signals">
      <header>
        <h2>{formatCount(spec.signals.length)} signals</h2>
        <input className="input policy-find" type="search" aria-label="Find a signal" placeholder="Find by name, metric or pack" value={text} maxLength={100} onChange={(e) => setText(e.target.value)} />
      </header>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Thresholds">
        <table className="signals stacks policy-signals">
          <thead>
            <tr>
              <th scope="col">Signal</th>
              {FIELDS.map((f) => (
                <th key={f} scope="col" className="num">
                  {LABELS[f]}
                </th>
              ))}
              <th scope="col">Cap when bad</th>
              <th scope="col" className="num">Sites with a value</th>
              <th scope="col">State</th>
            </tr>
          </thead>
          {DIMENSIONS.map((d) => {
            const of = shown.filter((s) => s.dimension === d);
            return (
              of.length > 0 && (
                <tbody key={d}>
                  <tr className="group">
                    <th scope="rowgroup" colSpan={7}>
                      {dimensionName[d]}
                    </th>
                  </tr>
                  {of.map((s) => {
                    const fare = fares.get(s.name);
                    const fault = edits ? faultOf(s, edits[s.name]) : "";
                    return (
                      <tr key={s.name} data-policy-signal={s.name}>
                        <td className="vs-name">
                          <details>
                            <summary className="mono">{s.name}</summary>
                            <Query signal={s} packs={spec.packs} />
                          </details>
                        </td>
                        {FIELDS.map((f) => (
                          <td key={f} className="num" data-label={LABELS[f]}>
                            {edits ? (
                              <input className="input bound" aria-label={`${f} of ${s.name}`} aria-invalid={fault !== ""} maxLength={30} value={edits[s.name]?.[f] ?? s[f] ?? (f === "weight" ? "1" : "")} onChange={(e) => set(s.name, f, e.target.value)} />
                            ) : f === "weight" ? (
                              (s.weight ?? "1")
                            ) : (
                              <span title={s[f]}>{formatValue(quantity(s[f]), s.unit)}</span>
                            )}
                          </td>
                        ))}
                        <td data-label="Cap when bad">{s.cap !== undefined ? `score at most ${s.cap}` : s.critical ? "red: score at most 39" : <span className="muted">none</span>}</td>
                        <td className="num" data-label="Sites with a value">
                          {fare ? formatCount(fare.sitesKnown) : "–"} <span className="muted">of {formatCount(policy.sites)}</span>
                        </td>
                        <td data-label="State">{fault ? <span className="error">{fault}</span> : fare?.error ? <span className="error">{fare.error}</span> : fare?.sitesKnown === 0 ? <span className="muted">no site has this metric</span> : "answered"}</td>
                      </tr>
                    );
                  })}
                </tbody>
              )
            );
          })}
        </table>
      </div>
      {shown.length === 0 && <p className="body muted">No signal fits.</p>}
    </section>
  );
}

function Query({ signal: s, packs = [] }: { signal: PolicySpecSignal; packs: HealthPolicyDetail["spec"]["packs"] }) {
  const rows: [string, string | undefined][] = [
    ["Query", s.query], ["Names what is to blame", s.objects], ["Applies where", packs.find((p) => p.name === s.pack)?.when], ["Says", s.text], ["From", s.source], ["Causes", s.causes?.join(", ")],
  ];
  return (
    <dl className="policy-query">
      {rows.map(([name, text]) => text && (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd className={/^(Query|Names|Applies)/.test(name) ? "mono" : undefined}>{text}</dd>
        </Fragment>
      ))}
    </dl>
  );
}
