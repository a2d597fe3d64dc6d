import { useState } from "react";
import { Link, useSearch } from "wouter";
import { Problem } from "../api/client";
import { useSiteExplanation } from "../api/queries";
import type { ExplainedDimension, ExplainedSignal, Explanation } from "../api/types";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { For } from "../components/time";
import { colourName, colourOfScore, dimensionName } from "../lib/colour";
import { DASH, doNotApply, formatFigure, formatScore, formatValue, plural } from "../lib/format";
import { sitePath } from "../lib/site";
import { useTenantInAddress } from "../lib/use-whole-address";
import { Failed } from "./site";

/** The arithmetic of a site's score, from readings to colour: what `muster health explain` says. */
export function ScorePage({ name }: { name: string }) {
  const search = new URLSearchParams(useSearch());
  const tenant = search.get("tenant") ?? "";
  const query = useSiteExplanation({ tenant, name }, search.get("shadow") === "true");
  useTitle(`Score of ${name}`);
  const x = query.data;
  useTenantInAddress(x);
  const back = tenant ? sitePath({ tenant, name }) : `/sites/${encodeURIComponent(name)}`;
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={x ? sitePath({ tenant: x.tenant, name: x.site }) : back}>← {name}</Link>
      </p>
      {query.isPending && (
        <>
          <h1>Score of {name}</h1>
          <Skeleton height={60} count={5} />
        </>
      )}
      {query.error && !x && <NoScore error={query.error} name={name} back={back} onRetry={() => void query.refetch()} />}
      {x && (
        <>
          {query.error && <ProblemNote slim error={query.error} doing="refresh the arithmetic; the figures are older" onRetry={() => void query.refetch()} />}
          <Arithmetic x={x} />
        </>
      )}
    </div>
  );
}

/** A site without an evaluation has nothing to explain; everything else is a fault, or no site. */
function NoScore({ error, name, back, onRetry }: { error: unknown; name: string; back: string; onRetry: () => void }) {
  if (error instanceof Problem && error.status === 404 && error.detail.includes("no score to explain")) {
    return (
      <div className="card">
        <Empty page title={`${name} has no score yet`}>
          <p>{error.detail}</p>
          <Link href={back} className="button">
            Go to the site
          </Link>
        </Empty>
      </div>
    );
  }
  return <Failed error={error} name={name} page="/score" onRetry={onRetry} />;
}

function Arithmetic({ x }: { x: Explanation }) {
  const absent = x.dimensions.flatMap((d) => d.signals.filter((s) => !s.applies));
  return (
    <>
      <header className="site-head">
        <div className="site-score" data-site-colour={x.colour}>
          <Shape colour={x.colour} size={30} />
          {formatScore(x.score)}
        </div>
        <div style={{ minWidth: 0 }}>
          <h1>Score of {x.site}</h1>
          <p className="muted">
            <span style={{ color: "var(--text)" }}>{colourName[x.colour]}</span>
            <For since={x.since} before=" " />
            {x.shadow && <span className="chip warn">in shadow: counts for nothing</span>}
            {" · "}policy {x.policy || "(shipped)"} · tenant {x.tenant}
          </p>
          {x.overrides.map((o) => (
            <p key={o.reason + o.until} className="muted small">
              override of {o.signals.join(", ")} until {o.until.slice(0, 10)}: {o.reason}
            </p>
          ))}
        </div>
      </header>
      <Lost x={x} />
      <section className="card" aria-label="From readings to dimensions">
        <header>
          <h2>From readings to dimensions</h2>
          <span className="muted small">a dimension is the mean of its signals by weight, times 100</span>
        </header>
        {x.dimensions.map((d) => (
          <DimensionPart key={d.name} dimension={d} />
        ))}
        {absent.length > 0 && (
          <details className="fold">
            <summary>{doNotApply(absent.length)}</summary>
            <ul className="labels">
              {absent.map((s) => (
                <li key={s.name} className="chip">
                  {s.name}: no {s.pack} here
                </li>
              ))}
            </ul>
          </details>
        )}
      </section>
      <section className="card" aria-label="From dimensions to the colour">
        <header>
          <h2>From dimensions to the colour</h2>
        </header>
        <ol className="steps">
          <li>
            <span className="muted">Score before caps</span>
            <b>{x.score === null ? "unknown: the known dimensions have less than half of the weight" : x.formula}</b>
          </li>
          {x.caps.map((c) => (
            <li key={c.signal} data-cap={c.signal} data-binds={c.binds}>
              <span className="muted">Cap {c.binds && <span className="chip warn">counts</span>}</span>
              <span>{c.text}</span>
            </li>
          ))}
          {x.score !== null && x.caps.length === 0 && (
            <li>
              <span className="muted">Caps</span>
              <span>none: no signal is below one half of its scale</span>
            </li>
          )}
          <li>
            <span className="muted">Colour</span>
            <span>
              <b>{x.colour}</b>: above 75 green, from 40 orange, below 40 red{x.waits && <>; {x.waits}</>}
            </span>
          </li>
        </ol>
      </section>
    </>
  );
}

/** The points of each reason, and their sum. */
function Lost({ x }: { x: Explanation }) {
  const sum = x.lost.reduce((n, l) => n + l.points, 0);
  return (
    <section className="card" aria-label="Points lost">
      <header>
        <h2>Points lost</h2>
        {x.score !== null && (
          <span className="small" data-sum>
            100 − {formatFigure(sum)} = {formatFigure(100 - sum)}
          </span>
        )}
      </header>
      {x.lost.length === 0 ? (
        <p className="body muted">No signal costs this site points.</p>
      ) : (
        <ol className="lost-points">
          {x.lost.map((l) => (
            <li key={`${l.dimension}/${l.signal}`} data-lost={l.signal}>
              <b className="num">−{formatFigure(l.points)}</b>
              <span>
                {l.text} <span className="muted small nowrap">{dimensionName[l.dimension]}</span>
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function DimensionPart({ dimension: d }: { dimension: ExplainedDimension }) {
  const [all, setAll] = useState(false);
  const here = d.signals.filter((s) => s.applies);
  const notable = here.filter((s) => s.score === null || s.score < 1).sort((a, b) => b.points - a.points);
  const well = here.filter((s) => s.score === 1);
  const name = dimensionName[d.name];
  return (
    <div className="part" data-dimension={d.name}>
      <h3 className="row wrap">
        <Shape colour={d.known ? colourOfScore(d.score) : "grey"} size={13} />
        {name} <b>{d.known ? formatFigure(d.beforeCaps) : d.applies ? "unknown" : DASH}</b>
        <span className="muted small">
          {d.applies ? `weight ${formatFigure(d.weight)}` : "does not apply"}
          {d.known && d.score < d.beforeCaps && ` · capped at ${formatFigure(d.score)}`}
          {d.incomplete && " · not fully known"}
        </span>
      </h3>
      {notable.length + (all ? well.length : 0) > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label={`Signals of ${name}`}>
          <table className="signals stacks">
            <thead>
              <tr>
                <th scope="col">Signal</th>
                <th scope="col" className="num">
                  Value
                </th>
                <th scope="col">Scores</th>
                <th scope="col" className="num">
                  Weight
                </th>
                <th scope="col" className="num">
                  Points
                </th>
              </tr>
            </thead>
            <tbody>
              {[...notable, ...(all ? well : [])].map((s) => (
                <SignalRow key={s.name} signal={s} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {well.length > 0 && (
        <p className="small row">
          <span className="muted">{well.length === 1 ? "1 signal is well" : `${plural(well.length, "signal")} are well`}</span>
          <button type="button" className="button quiet" aria-expanded={all} aria-label={`${all ? "Hide" : "Show"} the signals of ${name} that are well`} onClick={() => setAll(!all)}>
            {all ? "Hide" : "Show"}
          </button>
        </p>
      )}
    </div>
  );
}

function SignalRow({ signal: s }: { signal: ExplainedSignal }) {
  return (
    <tr data-signal={s.name}>
      <td className="vs-name">
        <span className="row" style={{ gap: 6 }}>
          <Shape colour={s.score === null ? "grey" : s.score === 0 ? "red" : s.score < 1 ? "orange" : "green"} size={10} />
          <span className="mono">{s.name}</span>
        </span>
        {s.score === null ? <div className="error small">{s.error || "nothing gives it"}</div> : s.objects.length > 0 && <div className="small">{s.objects.join(", ")}</div>}
      </td>
      <td className="num" data-label="Value">
        {s.value === null ? <span className="muted">unknown</span> : <b>{formatValue(s.value, s.unit)}</b>}
      </td>
      <td className="vs-bar" data-label="Scores">
        {s.score === null ? DASH : formatFigure(s.score)}{" "}
        <span className="muted small">
          between good {formatValue(s.good, s.unit)} and bad {formatValue(s.bad, s.unit)}
        </span>
      </td>
      <td className="num muted" data-label="Weight">
        {formatFigure(s.weight)}
      </td>
      <td className="num" data-label="Points">
        {s.points > 0 ? `−${formatFigure(s.points)}` : "0"}
      </td>
    </tr>
  );
}
