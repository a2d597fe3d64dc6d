import { TenantSelect } from "../components/filters";
import { useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { useExpire, useSilences } from "../api/alert-queries";
import type { Silence, SilenceState } from "../api/types";
import { Dialog } from "../components/dialog";
import { RightButton } from "../components/right-button";
import { isForbidden, ServiceNote } from "../components/service-note";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { SILENCE_STATES, silencesHref } from "../lib/alert-filter";
import { formatCount, plural } from "../lib/format";
import { formatMatcher } from "../lib/matchers";
import { parseTime } from "../lib/time";

const NAMES: Record<SilenceState | "all", string> = { active: "Active", pending: "Pending", expired: "Expired", all: "All" };

/** How many are shown before somebody asks for all. */
const FIRST = 50;

export function SilencesTab({ address, tenants }: { address: string; tenants: readonly string[] }) {
  const [, navigate] = useLocation();
  const p = new URLSearchParams(address);
  const tenant = p.get("tenant") ?? "";
  const state = SILENCE_STATES.find((s) => s === p.get("silences")) ?? "active";
  const list = useSilences(tenant, state);
  const [ending, setEnding] = useState<Silence | null>(null);
  const [all, setAll] = useState(false);
  // The one that a link asks for.
  const wanted = location.hash.slice(1);
  const loaded = list.data !== undefined;
  useEffect(() => {
    if (wanted && loaded) document.getElementById(wanted)?.scrollIntoView({ block: "center" });
  }, [wanted, loaded]);
  const found = [...(list.data ?? [])].sort((a, b) => (parseTime(b.startsAt) ?? 0) - (parseTime(a.startsAt) ?? 0));
  // A maintenance silences each of its sites: hundreds in a list help nobody. The one that is wanted is always among those shown.
  const shown = all || found.findIndex((s) => s.id === wanted) >= FIRST ? found : found.slice(0, FIRST);
  return (
    <>
      <div className="row wrap">
        <div className="segmented" role="group" aria-label="State of silences">
          {SILENCE_STATES.map((s) => (
            <button key={s} type="button" aria-pressed={s === state} onClick={() => navigate(silencesHref(tenant, s), { replace: true })}>
              {NAMES[s]}
            </button>
          ))}
        </div>
        <TenantSelect value={tenant} tenants={tenants} width={160} onChange={(t) => navigate(silencesHref(t, state), { replace: true })} />
      </div>
      {list.error && <ServiceNote error={list.error} service="silences" older={loaded} onRetry={() => void list.refetch()} />}
      {list.isPending && <Skeleton height={64} count={3} />}
      {loaded && found.length === 0 && (
        <div className="card">
          <Empty title={state === "all" ? "There are no silences" : `No ${state} silences`}>
            <p>A silence keeps alerts from telling anybody, for a time, by their labels.</p>
          </Empty>
        </div>
      )}
      {shown.length > 0 && (
        <section className="card" aria-label="Silences">
          <header>
            <h2>{plural(found.length, "silence")}</h2>
          </header>
          <ul>
            {shown.map((s) => (
              <Item key={s.id} silence={s} tenants={tenants.length > 1} lit={s.id === wanted} onEnd={() => setEnding(s)} />
            ))}
          </ul>
          {found.length > shown.length && (
            <div className="body">
              <button type="button" className="button" onClick={() => setAll(true)}>
                Show all {formatCount(found.length)}
              </button>
            </div>
          )}
        </section>
      )}
      {ending && <ExpireDialog silence={ending} onClose={() => setEnding(null)} />}
    </>
  );
}

/** All but the tenant's, which the server adds. */
const ownMatchers = (s: Silence) => s.matchers.filter((m) => !(m.name === "tenant" && m.value === s.tenant && m.isEqual && !m.isRegex));

/** One that operators made in Alertmanager, of which this user is not told what it says. */
const ofOperators = (s: Silence) => s.tenant === "" && s.matchers.length === 0;

function Item({ silence: s, tenants, lit, onEnd }: { silence: Silence; tenants: boolean; lit: boolean; onEnd: () => void }) {
  return (
    <li id={s.id} className={lit ? "silence lit" : "silence"} data-silence={s.id} data-state={s.state}>
      <div className="stack" style={{ gap: 6 }}>
        <h3>{s.comment || (ofOperators(s) ? "Silenced by the installation’s operators" : "No comment")}</h3>
        <Matchers silence={s} />
        <p className="muted small">
          by {s.maintenance ? "Muster" : s.createdBy || (ofOperators(s) ? "an operator" : "nobody known")} ·{" "}
          {s.state === "pending" ? (
            <>
              begins <Ago time={s.startsAt} />, ends <Ago time={s.endsAt} />
            </>
          ) : s.state === "active" ? (
            <>
              began <Ago time={s.startsAt} />, ends <Ago time={s.endsAt} />
            </>
          ) : (
            <>
              ended <Ago time={s.endsAt} />
            </>
          )}
          {tenants && <> · {s.tenant ? `tenant ${s.tenant}` : "of no tenant alone"}</>}
        </p>
      </div>
      <div className="row wrap">
        <span className={s.state === "active" ? "chip warn" : "chip"}>{s.state}</span>
        {s.maintenance ? (
          <span className="chip" title="Muster made it for a maintenance window and ends it with that">
            maintenance
          </span>
        ) : (
          s.state !== "expired" &&
          !ofOperators(s) && (
            <RightButton need="delete silences.muster.dev" tenants={[s.tenant]} onClick={onEnd}>
              Expire<span className="visually-hidden"> the silence: {s.comment}</span>
            </RightButton>
          )
        )}
      </div>
      {s.maintenance && s.state !== "expired" && <p className="hint">It belongs to a maintenance window and ends with it: end the maintenance on the page of the site or virtual site.</p>}
    </li>
  );
}

function Matchers({ silence }: { silence: Silence }) {
  if (ofOperators(silence)) return <p className="muted small">It keeps alerts of yours quiet. What else it fits, and why, only operators see; ask them to end it.</p>;
  const all = ownMatchers(silence);
  if (all.length === 0) return <p className="muted small">every alert of the tenant</p>;
  return (
    <ul className="labels" aria-label="Matchers">
      {all.map((m, i) => (
        <li key={i} className="chip">
          {formatMatcher(m)}
        </li>
      ))}
    </ul>
  );
}

function ExpireDialog({ silence: s, onClose }: { silence: Silence; onClose: () => void }) {
  const expire = useExpire();
  return (
    <Dialog title={s.state === "pending" ? "Drop the silence before it begins?" : "Expire the silence now?"} onClose={onClose} busy={expire.isPending} onSubmit={() => expire.mutate(s, { onSuccess: onClose })}
      actions={
        <button type="submit" className="button danger" disabled={expire.isPending}>
          {expire.isPending ? "Expiring…" : "Expire"}
        </button>
      }
    >
      <p>{s.comment}</p>
      <Matchers silence={s} />
      <p className="muted">Alerts that it fits and that still fire tell people again. It can't be taken up again; make a new one instead.</p>
      {expire.error && <ProblemNote error={expire.error} doing={isForbidden(expire.error) ? "expire it: you lack the right to delete silences.muster.dev here" : "expire the silence"} />}
    </Dialog>
  );
}

/** Links to the silences that keep an alert quiet. */
export function SilenceLinks({ ids, tenant }: { ids: readonly string[]; tenant: string }) {
  return (
    <>
      {ids.map((id, i) => (
        <span key={id}>
          {i > 0 && ", "}
          <Link href={`${silencesHref(tenant)}#${id}`}>
            <code>{id.slice(0, 8)}</code>
          </Link>
        </span>
      ))}
    </>
  );
}
