import { useId, useState } from "react";
import { Problem } from "../api/client";
import { useSiteRows } from "../api/map-queries";
import { useLack } from "../api/rights";
import { useMakeRules } from "../api/rule-queries";
import type { AlertRules, SiteDistribution } from "../api/types";
import { Dialog } from "../components/dialog";
import { isForbidden } from "../components/service-note";
import { CopyButton, ProblemNote } from "../components/states";
import { formatCount, plural } from "../lib/format";
import { nameable, nameFault, ruleName, ruleOf, yamlOf } from "../lib/load";

/** As many sites as an expression may name have room in one page. */
const MOST_SITES = 1000;

interface Props {
  d: SiteDistribution;
  title: string;
  /** The query that chose the sites. */
  q: string;
  tenants: readonly string[];
  /** Chosen already; "" leaves the choice. */
  tenant: string;
  onClose: () => void;
  onDone: (made: AlertRules, alert: string) => void;
}

/** Makes the alert rule that fires above a threshold, or gives it as YAML. */
export function MakeRuleDialog({ d, title, q, tenants, tenant: given, onClose, onDone }: Props) {
  const id = useId();
  const make = useMakeRules();
  const [tenant, setTenant] = useState(given || tenants[0] || "");
  const [threshold, setThreshold] = useState(() => Math.min(99, Math.ceil(d.p90 ?? 90)));
  const [name, setName] = useState(() => ruleName(d.column));
  const [only, setOnly] = useState(true);
  const lack = useLack("create alertrules.muster.dev", [tenant]);
  const chosen = useSiteRows({ q, tenant, columns: "name", limit: MOST_SITES }, q !== "");
  const names = chosen.data && !chosen.isPlaceholderData && chosen.data.total <= MOST_SITES ? chosen.data.sites.map((s) => s.name) : [];
  const narrow = q !== "" && only && nameable(names);
  const waits = q !== "" && only && (chosen.isPending || chosen.isPlaceholderData);
  const rule = ruleOf(d.column, threshold, name.trim(), narrow ? names : []);
  const error = make.error;
  const fault = nameFault(name.trim()) || (error instanceof Problem ? error.fieldFault("name") : "");
  const above = d.bins.filter((b) => b.from >= threshold).reduce((n, b) => n + b.sites, 0);
  const refused = lack || (isForbidden(error) ? `You lack the right to create alertrules.muster.dev in ${tenant}-system` : "");
  // What was said of one name or tenant is not said of another.
  const change = (set: () => void) => {
    set();
    make.reset();
  };
  const submit = () => {
    if (rule && !nameFault(name.trim()) && !lack && !waits) make.mutate({ tenant, rule }, { onSuccess: (made) => onDone(made, rule.spec.groups[0]!.rules[0]!.alert) });
  };
  if (!rule) return null;
  const yaml = yamlOf(rule, tenant);
  return (
    <Dialog title={`Alert rule: ${title}`} onClose={onClose} onSubmit={submit} busy={make.isPending}
      actions={
        <button type="submit" className="button primary" disabled={make.isPending || waits || lack !== ""}>
          {make.isPending ? "Making…" : "Make the rule"}
        </button>
      }
    >
      {tenants.length > 1 && (
        <div className="field">
          <label htmlFor={`${id}-tenant`}>Tenant</label>
          <select id={`${id}-tenant`} className="select" value={tenant} onChange={(e) => change(() => setTenant(e.target.value))}>
            {(tenants.includes(tenant) ? tenants : [tenant, ...tenants]).map((t) => (
              <option key={t}>{t}</option>
            ))}
          </select>
        </div>
      )}
      <div className="cols2">
        <div className="field">
          <label htmlFor={`${id}-above`}>Fires above, in percent</label>
          <input id={`${id}-above`} className="input" type="number" min={1} max={99} autoFocus value={threshold} aria-describedby={`${id}-above-hint`}
            onChange={(e) => setThreshold(Math.max(1, Math.min(99, Number(e.target.value) || 1)))} />
          <p id={`${id}-above-hint`} className="hint">
            after 15 minutes; the bars from there on have {plural(above, "site")} now
          </p>
        </div>
        <div className="field">
          <label htmlFor={`${id}-name`}>Name</label>
          <input id={`${id}-name`} className="input mono" maxLength={253} spellCheck={false} autoCapitalize="off" value={name} aria-invalid={fault !== ""} aria-describedby={`${id}-name-hint`}
            onChange={(e) => change(() => setName(e.target.value))} />
          <p id={`${id}-name-hint`} className={fault ? "fault" : "hint"} role={fault ? "alert" : undefined}>
            {fault || `of the AlertRules in ${tenant}-system`}
          </p>
        </div>
      </div>
      {q === "" ? (
        <p className="hint">It watches all sites of {tenant}, also those to come.</p>
      ) : (
        <Selection total={chosen.data?.total} failed={chosen.error !== null} fits={nameable(names)} tenant={tenant} only={only} onChange={setOnly} />
      )}
      <details className="load-rule" open={refused !== "" || undefined}>
        <summary>As YAML</summary>
        <div className="row spread">
          <span className="muted small">
            To keep in a repository, or for <code>kubectl apply -f</code>.
          </span>
          <CopyButton text={yaml} />
        </div>
        <pre tabIndex={0} role="region" aria-label={`Alert rule for ${title}`}>
          {yaml}
        </pre>
      </details>
      {refused && (
        <div className="note warn" role="alert">
          <div>
            <strong>{refused}</strong>
            <p>Editors and administrators of {tenant} have it: ask one for it, or send them the YAML.</p>
          </div>
        </div>
      )}
      {error && !isForbidden(error) && !(error instanceof Problem && error.fieldFault("name")) && <ProblemNote error={error} doing="make the alert rule; nothing is stored" />}
    </Dialog>
  );
}

/** Whether the rule is about the query's sites alone. */
function Selection({ total, failed, fits, tenant, only, onChange }: { total: number | undefined; failed: boolean; fits: boolean; tenant: string; only: boolean; onChange: (only: boolean) => void }) {
  if (total === undefined) return <p className="hint">{failed ? `Which sites the query means can't be told now: it watches all sites of ${tenant}.` : "Looking which sites the query means…"}</p>;
  if (!fits)
    return (
      <p className="hint">
        It watches all sites of {tenant}: {total === 0 ? "the query finds none of them" : `the ${formatCount(total)} that the query finds are too many to name in a rule`}.
      </p>
    );
  return (
    <label className="row">
      <input type="checkbox" checked={only} onChange={(e) => onChange(e.target.checked)} />
      <span>
        Only {total === 1 ? "the site" : `the ${formatCount(total)} sites`} of {tenant} that the query finds now, by name
      </span>
    </label>
  );
}
