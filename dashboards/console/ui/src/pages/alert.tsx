import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearch } from "wouter";
import { useAlert } from "../api/alert-queries";
import { Problem, serverNow } from "../api/client";
import { sessionQuery } from "../api/queries";
import type { AlertDetail, AlertSpan } from "../api/types";
import { RightButton } from "../components/right-button";
import { ServiceNote } from "../components/service-note";
import { Severity } from "../components/severity";
import { RunbookText } from "../components/runbook";
import { useTitle } from "../components/shell";
import { Empty, Skeleton } from "../components/states";
import { Ago, For, useNow } from "../components/time";
import { alertPath, alertsHref, isShippedRunbook, safeURL, summaryOf } from "../lib/alert-filter";
import { wordsOfDuration } from "../lib/duration";
import { DASH, plural } from "../lib/format";
import { logsHref } from "../lib/log-filter";
import { rfc3339 } from "../lib/time-span";
import { tellingLabels } from "../lib/matchers";
import { sitePath, virtualSitePath } from "../lib/site";
import { spansWithin } from "../lib/spans";
import { formatAbsolute, formatTick, parseTime } from "../lib/time";
import { AlertStateChip } from "./alerts";
import { SilenceDialog } from "../dialogs/silence";
import { AlertChart, RuleLoudness } from "../panels/alert-chart";
import { SilenceLinks } from "../panels/silences";

export function AlertPage({ fingerprint }: { fingerprint: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const query = useAlert(tenant, fingerprint);
  const a = query.data;
  useTitle(a?.name ?? "Alert");
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href="/alerts">← Alerts</Link>
      </p>
      {query.isPending && (
        <>
          <h1>Alert</h1>
          <Skeleton height={36} count={4} />
        </>
      )}
      {query.error &&
        (query.error instanceof Problem && query.error.status === 404 ? (
          <div className="card">
            <Empty page={!a} title="There is no such alert">
              <p>{query.error.detail || "It has never fired, or so long ago that nobody remembers."}</p>
              <Link href="/alerts" className="button">
                All alerts
              </Link>
            </Empty>
          </div>
        ) : (
          <>
            {!a && <h1>Alert</h1>}
            <ServiceNote error={query.error} service="alerts" older={a !== undefined} slim={a !== undefined} onRetry={() => void query.refetch()} />
          </>
        ))}
      {a && <Loaded alert={a} />}
    </div>
  );
}

const BEFORE_MS = 10 * 60_000;
const AFTER_MS = 10 * 60_000;

/** The site's logs around the start of the alert. */
function logsAround(a: AlertDetail): string {
  const start = parseTime(a.startsAt) ?? serverNow();
  return logsHref({ tenant: a.tenant, site: a.site, ...(a.labels.namespace ? { namespace: a.labels.namespace } : {}), from: rfc3339(start - BEFORE_MS), to: rfc3339(start + AFTER_MS) });
}

function Loaded({ alert: a }: { alert: AlertDetail }) {
  const session = useQuery(sessionQuery);
  const [silencing, setSilencing] = useState(false);
  const [done, setDone] = useState("");
  return (
    <>
      <header className="page-head">
        <div className="stack" style={{ gap: 6 }}>
          <div className="row wrap">
            <h1>{a.name}</h1>
            <Severity severity={a.severity} />
            <AlertStateChip alert={a} />
          </div>
          <p>{summaryOf(a)}</p>
          <p className="muted">
            {a.site ? (
              <>
                Site <Link href={sitePath({ tenant: a.tenant, name: a.site })}>{a.site}</Link>
              </>
            ) : (
              "No single site"
            )}
            {a.region && <> · {a.region}</>} · tenant {a.tenant || DASH} ·{" "}
            {a.state === "resolved" ? (
              <>
                resolved <Ago time={a.endsAt} />
              </>
            ) : (
              <>
                fires <For since={a.startsAt} />
              </>
            )}
            <RuleLoudness alert={a} />
          </p>
        </div>
        <div className="row wrap">
          {a.site && (
            <Link className="button" href={logsAround(a)}>
              Logs around its start
            </Link>
          )}
          {a.state !== "resolved" && (
            <RightButton need="create silences.muster.dev" tenants={[a.tenant]} className="button primary" onClick={() => setSilencing(true)}>
              Silence…
            </RightButton>
          )}
        </div>
      </header>
      <div role="status">{done && <div className="note slim">{done}</div>}</div>
      {(a.silencedBy.length > 0 || a.inhibitedBy.length > 0) && (
        <div className="note slim">
          <strong>It tells nobody</strong>
          {a.silencedBy.length > 0 && (
            <span>
              {plural(a.silencedBy.length, "silence fits it", "silences fit it")}: <SilenceLinks ids={a.silencedBy} tenant={a.tenant} />
            </span>
          )}
          {a.inhibitedBy.length > 0 && (
            <span>
              a more important alert stands for it:{" "}
              {a.inhibitedBy.map((f, i) => (
                <span key={f}>
                  {i > 0 && ", "}
                  <Link href={alertPath({ fingerprint: f, tenant: a.tenant })}>
                    <code>{f}</code>
                  </Link>
                </span>
              ))}
            </span>
          )}
        </div>
      )}
      <div className="site-cols">
        <div className="stack">
          <Runbook alert={a} />
          <AlertChart alert={a} />
          <Annotations alert={a} />
          <History spans={a.history} />
        </div>
        <section className="card" aria-label="Labels">
          <header>
            <h2>Labels</h2>
          </header>
          <dl className="kv body">
            {Object.entries(a.labels)
              .filter(([k]) => k !== "virtual_sites" || a.virtualSites.length > 0)
              .sort()
              .map(([k, v]) => (
                <div key={k} style={{ display: "contents" }}>
                  <dt>{k}</dt>
                  <dd className="mono">{k === "virtual_sites" ? <VirtualSites of={a} /> : v}</dd>
                </div>
              ))}
          </dl>
          <p className="body small">
            <Link href={alertsHref({ tenant: a.tenant, q: a.name })}>All alerts {a.name}</Link>
            {a.site && (
              <>
                {" · "}
                <Link href={alertsHref({ tenant: a.tenant, site: a.site })}>All alerts of {a.site}</Link>
              </>
            )}
          </p>
        </section>
      </div>
      {silencing && (
        <SilenceDialog
          tenants={session.data?.tenants ?? []}
          tenant={a.tenant}
          labels={tellingLabels(a.labels)}
          onClose={() => setSilencing(false)}
          onDone={(text) => {
            setDone(text);
            setSilencing(false);
          }}
        />
      )}
    </>
  );
}

/** The label has them between bars, for matchers; people get a list. */
function VirtualSites({ of: a }: { of: AlertDetail }) {
  return (
    <ul>
      {a.virtualSites.map((v) => {
        const [namespace = "", name = ""] = v.includes("/") ? v.split("/") : ["shared", v];
        return (
          <li key={v}>
            <Link href={virtualSitePath({ tenant: a.tenant, namespace, name })}>{v}</Link>
          </li>
        );
      })}
    </ul>
  );
}

/** The text for an alert that ships with Muster. */
function Runbook({ alert: a }: { alert: AlertDetail }) {
  if (!isShippedRunbook(a.annotations.runbook_url, a.name)) return null;
  return (
    <section className="card" aria-label="Runbook">
      <header>
        <h2>What it means, and what to do</h2>
        <Link href={`/runbooks/${a.name}`}>Runbook</Link>
      </header>
      <div className="body">
        <RunbookText alert={a.name} />
      </div>
    </section>
  );
}

/** Annotations that are addresses are links. */
function Annotations({ alert: a }: { alert: AlertDetail }) {
  const all = Object.entries(a.annotations).filter(([, v]) => v);
  const runbook = isShippedRunbook(a.annotations.runbook_url, a.name) ? "" : safeURL(a.annotations.runbook_url ?? a.annotations.runbook);
  return (
    <section className="card" aria-label="Annotations">
      <header>
        <h2>Annotations</h2>
        {runbook && (
          <a href={runbook} target="_blank" rel="noreferrer">
            Runbook
          </a>
        )}
      </header>
      {all.length === 0 ? (
        <p className="body muted">The rule gives none.</p>
      ) : (
        <dl className="kv body">
          {all.sort().map(([k, v]) => (
            <div key={k} style={{ display: "contents" }}>
              <dt>{k}</dt>
              <dd>
                {safeURL(v) ? (
                  <a href={safeURL(v)} target="_blank" rel="noreferrer">
                    {v}
                  </a>
                ) : (
                  v
                )}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

const DAYS = [
  { id: "24h", label: "24 h", ms: 86_400_000 },
  { id: "7d", label: "7 d", ms: 7 * 86_400_000 },
  { id: "30d", label: "30 d", ms: 30 * 86_400_000 },
] as const;
const ROWS = 20;

/** When it has fired. */
function History({ spans }: { spans: readonly AlertSpan[] }) {
  const now = useNow();
  const [range, setRange] = useState<(typeof DAYS)[number]>(DAYS[1]);
  const [all, setAll] = useState(false);
  const start = now - range.ms;
  const shown = spansWithin(spans, start, now);
  const seconds = shown.reduce((n, s) => n + (s.end - s.start), 0) / 1000;
  return (
    <section className="card" aria-label="History">
      <header>
        <h2>History</h2>
        <div className="segmented" role="group" aria-label="Time range">
          {DAYS.map((d) => (
            <button key={d.id} type="button" aria-pressed={d.id === range.id} onClick={() => setRange(d)}>
              {d.label}
            </button>
          ))}
        </div>
      </header>
      <div className="body stack" style={{ gap: 8 }}>
        <div className="chart">
          <div className="spans" role="img" aria-label={`In the last ${range.label} it fired ${plural(shown.length, "time")}, ${wordsOfDuration(seconds)} in all`}>
            {shown.map((s) => (
              <i key={s.start} style={{ left: `${((s.start - start) / range.ms) * 100}%`, width: `${((s.end - s.start) / range.ms) * 100}%` }} />
            ))}
          </div>
          <div className="axis" aria-hidden>
            {[0, 0.5, 1].map((f) => (
              <span key={f}>{formatTick(start + f * range.ms, range.ms / 1000)}</span>
            ))}
          </div>
        </div>
        <p className="muted small">
          Fired {plural(shown.length, "time")} in the last {range.label}
          {shown.length > 0 && `, ${wordsOfDuration(seconds)} in all`}.
        </p>
      </div>
      {spans.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of the times it fired">
          <table>
            <thead>
              <tr>
                <th scope="col">From</th>
                <th scope="col">To</th>
                <th scope="col" className="num">
                  For
                </th>
              </tr>
            </thead>
            <tbody>
              {spans.slice(0, all ? undefined : ROWS).map((s) => {
                const [from, to] = [parseTime(s.startsAt), parseTime(s.endsAt)];
                return (
                  <tr key={s.startsAt}>
                    <td>{from === undefined ? DASH : formatAbsolute(from)}</td>
                    <td>{to === undefined ? "still fires" : formatAbsolute(to)}</td>
                    <td className="num">{from === undefined ? DASH : wordsOfDuration(Math.max(0, ((to ?? now) - from) / 1000))}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {spans.length > ROWS && !all && (
        <p className="body">
          <button type="button" className="button" onClick={() => setAll(true)}>
            Show all {spans.length}
          </button>
        </p>
      )}
    </section>
  );
}
