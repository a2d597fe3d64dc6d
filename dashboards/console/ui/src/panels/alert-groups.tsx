import { useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { type GroupSort, useAlertGroups } from "../api/alert-queries";
import type { AlertGroup } from "../api/types";
import { RightButton } from "../components/right-button";
import { ServiceNote } from "../components/service-note";
import { SeverityMark } from "../components/severity";
import { Empty, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { type AlertFilter, alertPath, summaryOf, suppressedText } from "../lib/alert-filter";
import { commonLabels, firing, groupKey, nameOf } from "../lib/alert-group";
import { DASH, formatCount, plural } from "../lib/format";
import { sitePath } from "../lib/site";
import { SilenceGroupsDialog } from "../dialogs/silence-groups";

/** By what groups can be ordered, and the rule in words. */
const SORTS: readonly [GroupSort, string, string][] = [
  ["severity", "Most severe", "Those with the most critical alerts come first, then by warnings and by info; of equal ones the one with the newest alert. What is silenced or inhibited does not count."],
  ["newest", "Newest", "The one with the newest alert comes first."],
  ["count", "Largest", "Those with the most alerts come first, silenced and inhibited ones included; of equal ones the one with the newest alert."],
];
const SHOWN = 5;

/** What fires, as the routes group it. onSilence gets the labels that a group has in common; onDone what was done to several. */
export function AlertGroups({ filter, tenants, onSilence, onDone }: { filter: AlertFilter; tenants: boolean; onSilence: (tenant: string, labels: Record<string, string>) => void; onDone: (text: string) => void }) {
  const [, navigate] = useLocation();
  const address = useSearch();
  const [sort, , rule] = SORTS.find(([id]) => id === new URLSearchParams(address).get("sort")) ?? SORTS[0]!;
  const list = useAlertGroups(filter, sort);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [asking, setAsking] = useState<readonly AlertGroup[]>();
  const choose = (key: string, on: boolean) => setChosen((all) => new Set(on ? [...all, key] : [...all].filter((k) => k !== key)));
  const able = list.data?.groups.filter((g) => firing(g) > 0) ?? [];
  const picked = able.filter((g) => chosen.has(groupKey(g)));
  const order = (id: GroupSort) => {
    const p = new URLSearchParams(address);
    p.set("sort", id);
    navigate(`/alerts?${p.toString()}`, { replace: true });
  };
  return (
    <>
      <div className="row wrap spread">
        <p className="muted small">A group is what a receiver gets in one notification: alerts of a route with the same values of its group_by. {rule}</p>
        <div className="segmented" role="group" aria-label="Order of groups">
          {SORTS.map(([id, text]) => (
            <button key={id} type="button" aria-pressed={id === sort} onClick={() => order(id)}>
              {text}
            </button>
          ))}
        </div>
      </div>
      {list.error && <ServiceNote error={list.error} service="alerts" older={list.data !== undefined} onRetry={() => void list.refetch()} />}
      {list.isPending && <Skeleton height={60} count={4} />}
      {list.data?.groups.length === 0 && (
        <div className="card">
          <Empty title="Nothing fires">
            <p>No alert that fires now fits.</p>
          </Empty>
        </div>
      )}
      {able.length > 1 && (
        <div className="row wrap chosen-groups" role="group" aria-label="Groups that are chosen">
          <label className="row">
            <input type="checkbox" checked={picked.length === able.length} ref={(box) => void (box && (box.indeterminate = picked.length > 0 && picked.length < able.length))}
              onChange={(e) => setChosen(new Set(e.target.checked ? able.map(groupKey) : []))} />
            {picked.length > 0 ? `${plural(picked.length, "group")} with ${plural(picked.reduce((n, g) => n + firing(g), 0), "firing alert")}` : `Choose all ${formatCount(able.length)}`}
          </label>
          {picked.length > 0 && (
            <RightButton need="create silences.muster.dev" tenants={picked.map((g) => g.tenant)} className="button primary" onClick={() => setAsking(picked)}>
              Silence {picked.length > 1 ? `these ${formatCount(picked.length)} groups` : "this group"}…
            </RightButton>
          )}
        </div>
      )}
      {asking && (
        <SilenceGroupsDialog groups={asking} tenants={tenants} onClose={() => setAsking(undefined)}
          onDone={(keys, text) => {
            setChosen((all) => new Set([...all].filter((k) => !keys.includes(k))));
            setAsking(undefined);
            onDone(text);
          }} />
      )}
      {list.data?.groups.map((g) => (
        <Group key={groupKey(g)} group={g} tenants={tenants} onSilence={onSilence} chosen={chosen.has(groupKey(g))} onChoose={(on) => choose(groupKey(g), on)} />
      ))}
      {list.data && list.data.total > list.data.groups.length && <p className="muted small">{formatCount(list.data.groups.length)} of {plural(list.data.total, "group")}; narrow with the filters of All alerts.</p>}
    </>
  );
}

interface GroupProps {
  group: AlertGroup;
  tenants: boolean;
  onSilence: (tenant: string, labels: Record<string, string>) => void;
  chosen: boolean;
  onChoose: (on: boolean) => void;
}

function Group({ group: g, tenants, onSilence, chosen, onChoose }: GroupProps) {
  const [all, setAll] = useState(false);
  const name = nameOf(g);
  const counts = (["critical", "warning", "info"] as const).filter((s) => g.counts[s] > 0);
  return (
    <section className="card alert-group" aria-label={`Group ${name} of ${g.tenant} to ${g.receiver || "nobody"}`} data-group={name}>
      <header>
        <h2>
          {firing(g) > 0 && <input type="checkbox" aria-label={`Choose ${name}`} checked={chosen} onChange={(e) => onChoose(e.target.checked)} />} {name} <span className="muted">{formatCount(g.total)}</span>
        </h2>
        <span className="row wrap small">
          {counts.map((s) => (
            <span key={s} className="row nowrap" style={{ gap: 4 }}>
              <SeverityMark severity={s} size={11} /> {g.counts[s]} {s}
            </span>
          ))}
          {g.suppressed > 0 && <span className="chip">{g.suppressed} silenced or inhibited</span>}
          <span className="muted">{g.receiver ? `to ${g.receiver}` : "nobody is told: no route takes it"}</span>
          {tenants && <span className="muted">{g.tenant}</span>}
          {firing(g) > 0 && (
            <RightButton need="create silences.muster.dev" tenants={[g.tenant]} onClick={() => onSilence(g.tenant, commonLabels(g))}>
              Silence {g.total > 1 ? `these ${formatCount(g.total)}…` : "it…"}
            </RightButton>
          )}
        </span>
      </header>
      <ul className="alert-panel">
        {g.alerts.slice(0, all ? undefined : SHOWN).map((a) => (
          <li key={a.fingerprint} data-alert={a.fingerprint} data-state={a.state}>
            <SeverityMark severity={a.severity} />
            <span className="truncate">
              <Link href={alertPath(a)}>{a.name}</Link> {a.site ? <Link href={sitePath({ tenant: a.tenant, name: a.site })}>{a.site}</Link> : <span className="muted small">no single site</span>}{" "}
              {a.state !== "active" && <span className="chip">{suppressedText(a)}</span>}
            </span>
            <span className="small muted">
              <Ago time={a.startsAt} none={DASH} />
            </span>
            <span className="why small muted truncate">{summaryOf(a)}</span>
          </li>
        ))}
      </ul>
      {g.alerts.length > SHOWN && (
        <p className="body small">
          <button type="button" className="button quiet" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `Show ${g.total > g.alerts.length ? "the first " : "all "}${formatCount(g.alerts.length)}`}
          </button>
        </p>
      )}
    </section>
  );
}
