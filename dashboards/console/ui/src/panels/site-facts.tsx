import type { UseQueryResult } from "@tanstack/react-query";
import { serverNow } from "../api/client";
import type { Condition, SiteDetail, SiteObject } from "../api/types";
import { ProblemNote, Skeleton } from "../components/states";
import { Ago, For } from "../components/time";
import { isWell } from "../lib/conditions";
import { DASH, plural } from "../lib/format";
import { discovered, ownLabels } from "../lib/labels";
import { parseTime } from "../lib/time";

/** What the control plane knows: identity, versions, labels. */
export function SiteFacts({ query, site }: { query: UseQueryResult<SiteObject>; site: SiteDetail }) {
  const o = query.data;
  if (query.isPending) {
    return (
      <section className="card" aria-label="Facts">
        <div className="body">
          <Skeleton count={8} />
        </div>
      </section>
    );
  }
  if (!o) return <ProblemNote error={query.error} doing="read the site's object" onRetry={() => void query.refetch()} />;
  const versions = Object.entries(o.versions ?? {}).sort();
  const labels = o.labels ?? ownLabels(site.labels ?? {});
  return (
    <>
      {query.error && <ProblemNote slim error={query.error} doing="refresh the site's object" onRetry={() => void query.refetch()} />}
      <section className="card" aria-label="Facts">
        <header>
          <h2>Facts</h2>
        </header>
        <dl className="kv body">
          <dt>Phase</dt>
          <dd>
            {o.phase || DASH}
            {o.decommissioned && o.phase !== "Decommissioned" && " (being decommissioned)"}
          </dd>
          <dt>Regional</dt>
          <dd>{o.regional || "not connected"}</dd>
          <dt>Certificate</dt>
          <dd>
            <Certificate notAfter={o.certificateNotAfter} />
          </dd>
          <dt>Registered</dt>
          <dd>
            <Ago time={o.createdAt} none={DASH} />
            {o.token && (
              <>
                {" "}
                by token <code>{o.token}</code>
              </>
            )}
          </dd>
          <dt>Health policy</dt>
          <dd>{site.policy || "shipped"}</dd>
          <dt>Collection policy</dt>
          <dd>{o.policyHash ? <code title={o.policyHash}>{o.policyHash.replace(/^sha256:/, "").slice(0, 12)}</code> : "none reported"}</dd>
        </dl>
      </section>
      <section className="card" aria-label="Versions">
        <header>
          <h2>Versions</h2>
        </header>
        {versions.length === 0 ? (
          <p className="body muted">The site has not reported any.</p>
        ) : (
          <dl className="kv body">
            {versions.map(([k, v]) => (
              <Pair key={k} name={k} value={v} />
            ))}
          </dl>
        )}
      </section>
      {(o.software ?? []).length > 0 && (
        <section className="card" aria-label="Software">
          <header>
            <h2>Software</h2>
          </header>
          <dl className="kv body">
            {o.software.map((s) => (
              <Pair key={s.component} name={s.component} value={softwareText(s)} />
            ))}
          </dl>
        </section>
      )}
      <section className="card" aria-label="Labels">
        <header>
          <h2>Labels</h2>
        </header>
        <div className="body stack" style={{ gap: 10 }}>
          <Labels labels={labels} none="no labels" />
          <div className="stack" style={{ gap: 4 }}>
            <h3 className="label">Discovered</h3>
            <Labels labels={discovered(o.systemLabels ?? {})} none="nothing discovered yet" />
          </div>
        </div>
      </section>
    </>
  );
}

/** A component in a line: what runs, what is wanted, and how far that is. */
export function softwareText(s: SiteObject["software"][number]): string {
  let out = s.running || DASH;
  if (s.wanted && s.wanted !== s.running) out += ` → ${s.wanted}`;
  if (s.state) out += `, ${s.state.toLowerCase()}`;
  if (s.percent !== null) out += ` ${s.percent}%`;
  if (s.state === "Scheduled" && s.startsAt) out += ` for ${s.startsAt}`;
  if (s.message && s.state !== "Done") out += `: ${s.message}`;
  return out;
}

function Pair({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}

export function Labels({ labels, none }: { labels: Record<string, string>; none: string }) {
  const all = Object.entries(labels).sort();
  if (all.length === 0) return <p className="muted small">{none}</p>;
  return (
    <ul className="labels">
      {all.map(([k, v]) => (
        <li key={k} className="chip" title={`${k}=${v}`}>
          <span className="muted">{k}</span>
          {v !== "" && `=${v}`}
        </li>
      ))}
    </ul>
  );
}

function Certificate({ notAfter }: { notAfter: string | null | undefined }) {
  const t = parseTime(notAfter);
  if (t === undefined) return <>none issued</>;
  const left = (t - serverNow()) / 1000;
  return (
    <>
      {left < 0 ? "expired " : "expires "}
      <Ago time={t} />
      {left < 0 ? <span className="chip warn"> the site must enrol again</span> : left < 3600 && <span className="chip warn"> renewal is overdue</span>}
    </>
  );
}

/** What the site and Muster say about its state. */
export function ConditionsCard({ object }: { object: SiteObject | undefined }) {
  if (!object) return null; // SiteFacts says why
  return (
    <section className="card" aria-label="Conditions">
      <header>
        <h2>Conditions</h2>
      </header>
      <Conditions list={object.conditions ?? []} />
    </section>
  );
}

/** What is not well first; the others are a click away. */
function Conditions({ list }: { list: readonly Condition[] }) {
  if (list.length === 0) return <p className="body muted">No conditions are reported.</p>;
  const sorted = [...list].sort((a, b) => (a.type < b.type ? -1 : 1));
  const bad = sorted.filter((c) => !isWell(c));
  const well = sorted.filter(isWell);
  return (
    <>
      {bad.length > 0 && <Rows list={bad} />}
      {well.length > 0 && (
        <details className="fold">
          <summary>{bad.length === 0 ? `All ${plural(well.length, "condition")} well` : `${plural(well.length, "other")} well`}</summary>
          <Rows list={well} />
        </details>
      )}
    </>
  );
}

function Rows({ list }: { list: readonly Condition[] }) {
  return (
    <ul className="conditions">
      {list.map((c) => (
        <li key={c.type} data-condition={c.type}>
          <div className="row spread">
            <strong>{c.type}</strong>
            <span className={isWell(c) ? "chip" : "chip warn"}>{c.status}</span>
          </div>
          <div className="muted small">
            {[c.reason, c.message].filter(Boolean).join(": ") || "no reason given"}
            <For since={c.lastTransitionTime} before=" · " />
          </div>
        </li>
      ))}
    </ul>
  );
}
