import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearch } from "wouter";
import { Problem, serverNow } from "../api/client";
import { useRollout, useRolloutSites, type Wish } from "../api/rollout-queries";
import type { RolloutDetail } from "../api/types";
import { useVirtualKubernetes } from "../api/vk8s-queries";
import { Phase, StepBar } from "../components/rollout-bits";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago, For } from "../components/time";
import { RolloutControlDialog } from "../dialogs/rollout-control";
import { DASH, formatCount } from "../lib/format";
import { countdown, hasEnded, kindOfChange, rolloutKey, rolloutPath, type RolloutRef, wouldSkip } from "../lib/rollouts";
import { formatAbsolute, formatDuration, parseTime, zoned } from "../lib/time";
import { workloadPath } from "../lib/workloads";
import { RolloutDecisions, RolloutGates } from "../panels/rollout-gates";
import { RolloutScores } from "../panels/rollout-scores";
import { RolloutSites, type StepFilter } from "../panels/rollout-sites";
import { RolloutWaves } from "../panels/rollout-waves";

/** One change on its way over the sites: where it stands, and why. */
export function RolloutPage({ namespace, name }: { namespace: string; name: string }) {
  const tenant = new URLSearchParams(useSearch()).get("tenant") ?? "";
  const ref = useMemo<RolloutRef>(() => ({ tenant, namespace, name }), [tenant, namespace, name]);
  const query = useRollout(ref);
  useTitle(name);
  const r = query.data;
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href="/rollouts">← Rollouts</Link>
      </p>
      {query.isPending && (
        <>
          <h1>{name}</h1>
          <Skeleton height={40} count={5} />
        </>
      )}
      {query.error && !r && <Failed error={query.error} of={ref} onRetry={() => void query.refetch()} />}
      {r && (
        <>
          {query.error && <ProblemNote slim error={query.error} doing="refresh this rollout; what is shown is older" onRetry={() => void query.refetch()} />}
          <Loaded key={rolloutKey(r)} rollout={r} />
        </>
      )}
    </div>
  );
}

function Failed({ error, of, onRetry }: { error: unknown; of: RolloutRef; onRetry: () => void }) {
  if (error instanceof Problem && error.tenants.length > 0) {
    return (
      <div className="card">
        <Empty page title={`Several tenants have a rollout ${of.name}`}>
          <ul className="row wrap">
            {error.tenants.map((t) => (
              <li key={t}>
                <Link className="button" href={rolloutPath({ ...of, tenant: t })}>
                  {t}: {of.namespace}/{of.name}
                </Link>
              </li>
            ))}
          </ul>
        </Empty>
      </div>
    );
  }
  if (error instanceof Problem && error.status === 404) {
    return (
      <div className="card">
        <Empty page title="There is no such rollout">
          <p>It may have been deleted. {error.detail}</p>
          <Link href="/rollouts" className="button">
            All rollouts
          </Link>
        </Empty>
      </div>
    );
  }
  return (
    <>
      <h1>{of.name}</h1>
      <ProblemNote error={error} doing="load the rollout" onRetry={onRetry} />
    </>
  );
}

function Loaded({ rollout: r }: { rollout: RolloutDetail }) {
  const ended = hasEnded(r.phase);
  const sites = useRolloutSites(r, ended);
  const [wish, setWish] = useState<Wish | null>(null);
  const [done, setDone] = useState("");
  const [filter, setFilter] = useState<StepFilter>({ q: "", wave: "", step: "" });
  const table = useRef<HTMLDivElement>(null);
  const show = useCallback((f: { wave?: string; step?: string }) => {
    setFilter((was) => ({ ...was, q: "", ...f }));
    table.current?.scrollIntoView({ block: "start" });
  }, []);
  return (
    <>
      <Head rollout={r} onWish={setWish} />
      <div role="status">{done && <div className="note slim">{done}</div>}</div>
      <Standing rollout={r} />
      {sites.error && <ProblemNote slim error={sites.error} doing={sites.data ? "refresh the sites; their steps are older" : "list the sites"} onRetry={() => void sites.refetch()} />}
      <RolloutWaves rollout={r} sites={sites.data ?? (sites.error ? [] : undefined)} onShow={show} />
      <div className="site-cols">
        <div className="stack">
          {sites.data && <RolloutScores rollout={r} sites={sites.data} />}
          <RolloutGates rollout={r} />
        </div>
        <RolloutDecisions rollout={r} />
      </div>
      <div ref={table}>
        <RolloutSites rollout={r} sites={sites.data ?? (sites.error ? [] : undefined)} filter={filter} onFilter={setFilter} onRetry={(site) => setWish({ action: "retry", sites: [site] })} />
      </div>
      {wish && (
        <RolloutControlDialog
          rollout={r}
          wish={wish}
          onClose={() => setWish(null)}
          onDone={() => {
            setDone(DONE[wish.action]);
            setWish(null);
          }}
        />
      )}
    </>
  );
}

const DONE: Record<Wish["action"], string> = {
  pause: "It is being paused.",
  resume: "It goes on.",
  promote: "The wave is promoted.",
  abort: "The sites are being put back.",
  retry: "The site tries again.",
};

function Head({ rollout: r, onWish }: { rollout: RolloutDetail; onWish: (w: Wish) => void }) {
  const virtual = useVirtualKubernetes().data?.find((v) => v.tenant === r.tenant && v.namespace === r.namespace);
  return (
    <header className="page-head wide">
      <div className="stack" style={{ gap: 6 }}>
        <div className="row wrap">
          <h1>{r.name}</h1>
          <Phase phase={r.phase} size={14} />
        </div>
        <ul className="rollout-changes">
          {r.changes.map((c) => (
            <li key={`${c.kind}/${c.name}`}>
              {c.kind}{" "}
              {virtual ? <Link href={workloadPath({ virtual, kind: kindOfChange(c), name: c.name })}>{c.name}</Link> : <b>{c.name}</b>}: <span className="mono">{contentText(r, c.text)}</span>
            </li>
          ))}
        </ul>
        <p className="muted">
          {r.strategy === "BlueGreen" ? "blue/green" : r.strategy.toLowerCase()} over {r.virtualSites.join(", ") || "all sites that hold it"}
          {" · "}made <Ago time={r.createdAt} />
          {r.by && <> by {r.by}</>}
          {r.policy && <>, by the policy {r.policy}</>}
          {r.supersedes && (
            <>
              {" · "}took over from <Link href={rolloutPath({ ...r, name: r.supersedes })}>{r.supersedes}</Link>
            </>
          )}
          {" · "}namespace {r.namespace} of {r.tenant}
        </p>
      </div>
      <Buttons rollout={r} onWish={onWish} />
    </header>
  );
}

/** From what to what, where the contents have a name. */
function contentText(r: RolloutDetail, text: string): string {
  const old = r.contents[0]?.text;
  const fresh = r.contents.find((c) => c.new)?.text;
  return r.changes.length === 1 && old && fresh ? `${old} → ${fresh}` : text;
}

function Buttons({ rollout: r, onWish }: { rollout: RolloutDetail; onWish: (w: Wish) => void }) {
  if (hasEnded(r.phase)) return null;
  const { control, approve, skipGates } = r.rights;
  if (!control) return <span className="chip" title="You have no right to patch rollouts.muster.dev in this namespace">read only</span>;
  const skips = wouldSkip(r).length > 0;
  const mayPromote = skips ? skipGates : approve || skipGates;
  const goesOn = r.phase !== "RollingBack";
  return (
    <div className="row wrap">
      {goesOn && (r.paused || r.phase === "Paused" ? <button type="button" className="button primary" onClick={() => onWish({ action: "resume" })}>Resume…</button> : <button type="button" className="button" onClick={() => onWish({ action: "pause" })}>Pause…</button>)}
      {goesOn && r.wave > 0 && (
        <button
          type="button"
          className="button"
          disabled={!mayPromote}
          title={mayPromote ? undefined : `It takes the verb ${skips ? "skip-gates" : "approve"} on rollouts.muster.dev, which you don't have here`}
          onClick={() => onWish({ action: "promote", wave: r.wave })}
        >
          Promote wave {r.wave}…
        </button>
      )}
      {goesOn && (
        <button type="button" className="button danger" onClick={() => onWish({ action: "abort" })}>
          Abort…
        </button>
      )}
    </div>
  );
}

/** Where it stands, why, and what comes next. */
function Standing({ rollout: r }: { rollout: RolloutDetail }) {
  const c = r.sites;
  const began = parseTime(r.startedAt);
  const ended = parseTime(r.endedAt);
  return (
    <div className="card" data-standing={r.phase}>
      <div className="body progress-card">
        {r.message && <p className="standing">{zoned(r.message)}</p>}
        <StepBar counts={c} height={14} />
        <dl className="state-figures">
          <Figure label="Wave" value={r.progress || DASH} />
          <Figure label="Updated" value={c.total > 0 ? `${formatCount(c.updated)}/${formatCount(c.total)}` : DASH} />
          <Figure label="Failed" value={formatCount(c.failed)} />
          {c.rolledBack > 0 && <Figure label="Put back" value={formatCount(c.rolledBack)} />}
          {c.offline > 0 && <Figure label="Offline" value={formatCount(c.offline)} />}
          {c.held > 0 && <Figure label="Held" value={formatCount(c.held)} />}
          {began !== undefined && (
            <div>
              <dt>{ended === undefined ? "Under way" : "Took"}</dt>
              <dd>{ended === undefined ? <For since={r.startedAt} /> : formatDuration((ended - began) / 1000)}</dd>
            </div>
          )}
        </dl>
        {r.next && !hasEnded(r.phase) && <Next text={r.next} at={parseTime(r.nextAt)} />}
      </div>
    </div>
  );
}

function Next({ text, at }: { text: string; at: number | undefined }) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (at === undefined) return;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [at]);
  return (
    <p className="next">
      <span className="muted">Next:</span> {text}
      {at !== undefined && (
        <>
          {" "}
          <time dateTime={new Date(at).toISOString()} title={formatAbsolute(at)} className="chip nowrap">
            {countdown(at, serverNow())}
          </time>
        </>
      )}
    </p>
  );
}

function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}
