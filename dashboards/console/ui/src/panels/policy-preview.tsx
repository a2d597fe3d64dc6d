import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { sessionQuery } from "../api/queries";
import { type Candidate, useReplay, useTrial } from "../api/policy-queries";
import type { Colour, HealthOutcome, HealthPolicyDetail, HealthReplay, HealthTrial } from "../api/types";
import { Shape } from "../components/shape";
import { Command, ProblemNote } from "../components/states";
import { colourName } from "../lib/colour";
import { formatCount, formatScore, plural } from "../lib/format";
import { changed, changesOf, type Edits, faultOf, patchCommand } from "../lib/policy";
import { sitePath } from "../lib/site";
import { formatAbsolute, parseTime, zoned } from "../lib/time";

interface Props {
  detail: HealthPolicyDetail;
  edits: Edits | undefined;
  /** Whose sites it is tried on, as the address has it; "" where there is no preview. */
  tenant: string;
  onTenant: (tenant: string) => void;
}

// The shipped policy is tried as one of the tenant's that goes after all others, and so applies where it does.
const AFTER_ALL = "zzz-preview";

/** Tries edits of a policy on the readings of this moment and of the last day; nothing is written. */
export function PolicyPreview({ detail: { policy, spec }, edits, tenant, onTenant }: Props) {
  const session = useQuery(sessionQuery).data;
  const trial = useTrial();
  const replay = useReplay();
  const tenants = policy.tenant ? [policy.tenant] : (session?.tenants ?? []);
  if (!edits) {
    return (
      <section className="card">
        <div className="body row wrap spread">
          <p>Change thresholds and see which sites would get another colour, when and why. Nothing is written.</p>
          <button type="button" className="button primary" disabled={tenants.length === 0} onClick={() => onTenant(tenants[0]!)}>
            Preview an edit
          </button>
        </div>
      </section>
    );
  }
  const changes = changesOf(spec, edits);
  const fault = spec.signals.map((s) => faultOf(s, edits[s.name]) && `${s.name}: ${faultOf(s, edits[s.name])}`).find(Boolean);
  const ready = !fault && tenant !== "" && (changes.length > 0 || policy.shadow);
  const busy = trial.isPending || replay.isPending;
  const candidate: Candidate = { tenant, name: policy.tenant ? policy.name : AFTER_ALL, spec: changed(spec, changes) };
  const stop = () => {
    replay.stop();
    onTenant("");
  };
  return (
    <section className="card" aria-label="Preview">
      <header>
        <h2>Preview of an edit</h2>
        <button type="button" className="button quiet" onClick={stop}>
          Discard
        </button>
      </header>
      <div className="body stack">
        {changes.length === 0 ? (
          <p className="muted">{policy.shadow ? "Change bounds or weights below, or try it as it stands, as if it were in force." : "Change bounds or weights in the table below; then try them here."}</p>
        ) : (
          <ul className="row wrap" aria-label="Changes">
            {changes.map((c) => (
              <li key={`${c.signal} ${c.field}`} className="chip">
                <span className="mono">{c.signal}</span> {c.field} {c.from} → {c.to}
              </li>
            ))}
          </ul>
        )}
        {fault && (
          <p className="fault" role="alert">
            {fault}
          </p>
        )}
        <div className="row wrap">
          {!policy.tenant && (
            <select className="select policy-tenant" aria-label="Tenant" value={tenant} onChange={(e) => onTenant(e.target.value)}>
              {(tenants.includes(tenant) ? tenants : [tenant, ...tenants]).map((t) => (
                <option key={t}>{t}</option>
              ))}
            </select>
          )}
          <button type="button" className="button primary" disabled={!ready || busy} onClick={() => trial.mutate(candidate)}>
            {trial.isPending ? "Trying…" : "Try on readings of now"}
          </button>
          <button type="button" className="button" disabled={!ready || busy} onClick={() => replay.mutate(candidate)}>
            Play the last 24 hours
          </button>
          {replay.isPending && (
            <button type="button" className="button quiet" onClick={replay.stop}>
              Stop
            </button>
          )}
        </div>
        {trial.error && <ProblemNote error={trial.error} doing="try the policy" />}
        {trial.data && <TrialResult trial={trial.data} asking={trial.isPending} evaluations={[spec.evaluations ?? 2, spec.recoveryEvaluations ?? 4]} />}
        {replay.error && !(replay.error instanceof DOMException) && <ProblemNote error={replay.error} doing="play the history" />}
        {replay.progress && <ReplayResult tenant={tenant} {...replay.progress} />}
        {policy.tenant && changes.length > 0 && !fault && (
          <div>
            <p className="small muted">To put it in force; to roll it out in waves, see docs/rollouts.md:</p>
            <Command text={patchCommand(policy.tenant, policy.name, changes)} />
          </div>
        )}
      </div>
    </section>
  );
}

function Outcome({ of: o }: { of: HealthOutcome }) {
  return (
    <span className="nowrap">
      <Shape colour={o.colour} /> {colourName[o.colour]} {formatScore(o.score)}
    </span>
  );
}

function TrialResult({ trial: t, asking, evaluations: [worse, better] }: { trial: HealthTrial; asking: boolean; evaluations: [number, number] }) {
  const failing = t.signals.filter((s) => s.error);
  return (
    <div className="stack" role="region" aria-label="Result of now" data-changed={t.changed}>
      <p role="status">
        <strong>
          {formatCount(t.changed)} of {plural(t.sites, "site")} would change colour
        </strong>
        {t.changed > 0 && ` once the readings of ${formatAbsolute(parseTime(t.asOf) ?? 0)} have held: for the worse after ${plural(worse, "evaluation")}, at once by a critical signal; for the better after ${better}`}.
      </p>
      {t.missingRegions.length > 0 && (
        <div className="note slim warn" role="status">
          <strong>{plural(t.waiting, "more site")} not looked at</strong>
          <span>
            {t.missingRegions.map((r) => `${r.region} ${r.reason}`).join("; ")}
            {asking ? ": still asking." : "."}
          </span>
        </div>
      )}
      {failing.map((s) => (
        <p key={s.name} className="fault">
          {s.name}: {zoned(s.error ?? "")}
        </p>
      ))}
      {t.results.length > 0 && (
        <div className="table-wrap policy-results" tabIndex={0} role="region" aria-label="Sites that would change">
          <table>
            <thead>
              <tr>
                <th scope="col">Site</th>
                <th scope="col">Now</th>
                <th scope="col">Then</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              {t.results.map((r) => (
                <tr key={r.site} data-tried={r.site}>
                  <th scope="row">
                    <Link href={sitePath({ tenant: t.tenant, name: r.site })}>{r.site}</Link>
                  </th>
                  <td>
                    <Outcome of={r.before} />
                  </td>
                  <td>
                    <Outcome of={r.after} />
                  </td>
                  <td>{why(r.before, r.after)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {t.omitted > 0 && <p className="muted">And {plural(t.omitted, "more site")} with another score.</p>}
    </div>
  );
}

function why(before: HealthOutcome, after: HealthOutcome): string {
  const better = (after.score ?? 50) > (before.score ?? 50);
  return (!better && after.reason) || `no longer counts as much: ${before.reason}`;
}

function ReplayResult({ tenant, sites, done, total }: { tenant: string; sites: HealthReplay["sites"]; done: number; total: number }) {
  const differ = sites.filter((s) => s.differs);
  return (
    <div className="stack" role="region" aria-label="Result of the last 24 hours">
      <p role="status">
        <strong>{plural(differ.length, "site")}</strong> would have had other colours in the last 24 hours; {formatCount(done)} of {plural(total, "site")} looked at{done < total ? " so far" : ""}.
      </p>
      {differ.length > 0 && (
        <div className="table-wrap policy-results" tabIndex={0} role="region" aria-label="Sites that would have changed">
          <table>
            <thead>
              <tr>
                <th scope="col">Site</th>
                <th scope="col">Would have been</th>
                <th scope="col">Was</th>
              </tr>
            </thead>
            <tbody>
              {differ.map((s) => (
                <tr key={s.site} data-replayed={s.site}>
                  <th scope="row">
                    <Link href={sitePath({ tenant, name: s.site })}>{s.site}</Link>
                  </th>
                  <td>
                    <Moments of={s.would} />
                  </td>
                  <td>
                    <Moments of={s.did} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function Moments({ of }: { of: readonly { at: string; from: Colour; to: Colour; reason: string }[] }) {
  if (of.length === 0) return <span className="muted">no change</span>;
  return (
    <ul>
      {of.map((m) => (
        <li key={m.at}>
          <Shape colour={m.to} /> {colourName[m.to]} {m.from === m.to ? "from the beginning" : `at ${formatAbsolute(parseTime(m.at) ?? 0)}`}
          {m.reason && `: ${m.reason}`}
        </li>
      ))}
    </ul>
  );
}
