import { useMemo, useRef, useState } from "react";
import { useAllAlerts, useSilence } from "../api/alert-queries";
import { Problem } from "../api/client";
import type { Matcher } from "../api/types";
import { Dialog } from "../components/dialog";
import { isForbidden } from "../components/service-note";
import { ProblemNote } from "../components/states";
import { plural } from "../lib/format";
import { checkMatcher, checkMatchers, matcherOf, matchersOf, matching, OPERATORS, type Operator, operatorOf } from "../lib/matchers";
import { Icon } from "../components/icon";
import { SilenceTerms, useTerms } from "./silence-terms";

interface Props {
  tenants: readonly string[];
  /** Chosen already; "" leaves the choice. */
  tenant: string;
  /** What the matchers begin with. */
  labels: Readonly<Record<string, string>>;
  onClose: () => void;
  onDone: (text: string) => void;
}

interface Row {
  id: number;
  matcher: Matcher;
}

/** Silences alerts of a tenant for a while. */
export function SilenceDialog({ tenants, tenant: given, labels, onClose, onDone }: Props) {
  const silence = useSilence();
  const nextId = useRef(100);
  const [tenant, setTenant] = useState(given || tenants[0] || "");
  const [rows, setRows] = useState<Row[]>(() => {
    const ms = matchersOf(labels);
    return (ms.length > 0 ? ms : [matcherOf("alertname", "=", ""), matcherOf("site", "=", "")]).map((matcher, id) => ({ id, matcher }));
  });
  const terms = useTerms();
  const [tried, setTried] = useState(false);

  const blank = (m: Matcher) => m.name.trim() === "" && m.value === "";
  // Those that the dialog offers empty are left out unless somebody fills them.
  const used = useMemo(() => rows.map((r) => r.matcher).filter((m) => !blank(m) && !(Object.keys(labels).length === 0 && m.value === "" && m.isEqual && !m.isRegex)).map((m) => ({ ...m, name: m.name.trim() })), [rows, labels]);
  const faults = {
    matchers: checkMatchers(used) || (used.some((m) => checkMatcher(m) !== "") ? "A matcher is wrong." : ""),
  };
  const said = (field: string) => (silence.error instanceof Problem ? silence.error.fieldFault(field) : "");
  const edit = (id: number, change: Partial<Matcher>) => setRows((all) => all.map((r) => (r.id === id ? { ...r, matcher: { ...r.matcher, ...change } } : r)));
  const submit = () => {
    setTried(true);
    if (faults.matchers || !terms.agreed) return;
    const { agreed } = terms;
    silence.mutate({ tenant, request: { matchers: used, ...agreed.request } }, { onSuccess: () => onDone(`The silence lasts ${agreed.words}.`) });
  };
  return (
    <Dialog title="Silence alerts" onClose={onClose} onSubmit={submit} busy={silence.isPending}
      actions={
        <button type="submit" className="button primary" disabled={silence.isPending}>
          {silence.isPending ? "Silencing…" : "Silence"}
        </button>
      }
    >
      {tenants.length > 1 && (
        <div className="field">
          <label htmlFor="silence-tenant">Tenant</label>
          <select id="silence-tenant" className="select" value={tenant} onChange={(e) => setTenant(e.target.value)} disabled={given !== "" && Object.keys(labels).length > 1}>
            {(tenants.includes(tenant) ? tenants : [tenant, ...tenants]).map((t) => (
              <option key={t}>{t}</option>
            ))}
          </select>
        </div>
      )}
      <fieldset aria-describedby="silence-matchers">
        <legend>Alerts of which all labels fit</legend>
        <div className="matchers">
          {rows.map(({ id, matcher: m }) => {
            const fault = (tried && !blank(m) && checkMatcher({ ...m, name: m.name.trim() })) || "";
            return (
              <div key={id} className="matcher">
                <input className="input mono" aria-label="Label" placeholder="label" value={m.name} spellCheck={false} autoCapitalize="off" aria-invalid={fault !== ""} onChange={(e) => edit(id, { name: e.target.value })} />
                <select className="select mono" aria-label={`Comparison of ${m.name || "the label"}`} value={operatorOf(m)} title="= is, != is not, =~ fits the regular expression, !~ does not fit it"
                  onChange={(e) => {
                    const { isRegex, isEqual } = matcherOf("", e.target.value as Operator, "");
                    edit(id, { isRegex, isEqual });
                  }}>
                  {OPERATORS.map((o) => (
                    <option key={o}>{o}</option>
                  ))}
                </select>
                <input className="input mono" aria-label={`Value of ${m.name || "the label"}`} placeholder="value" value={m.value} spellCheck={false} autoCapitalize="off" aria-invalid={fault !== ""} onChange={(e) => edit(id, { value: e.target.value })} />
                <button type="button" className="button quiet icon" aria-label={`Remove matcher ${m.name}`} onClick={() => setRows((all) => all.filter((r) => r.id !== id))}>
                  <Icon d="M4 4l8 8M12 4l-8 8" />
                </button>
                {fault && (
                  <p className="fault" role="alert">
                    {fault}
                  </p>
                )}
              </div>
            );
          })}
        </div>
        <div className="row wrap spread">
          <button type="button" className="button" disabled={rows.length >= 20} onClick={() => setRows((all) => [...all, { id: nextId.current++, matcher: matcherOf("", "=", "") }])}>
            Add a matcher
          </button>
          <Count tenant={tenant} matchers={used} ready={checkMatchers(used) === "" && used.every((m) => checkMatcher(m) === "")} />
        </div>
        <p id="silence-matchers" className="fault" role="alert">
          {(tried && faults.matchers) || said("matchers")}
        </p>
      </fieldset>
      <SilenceTerms terms={terms} tried={tried} said={said} />
      {silence.error && !said("matchers") && !said("comment") && !said("duration") && <ProblemNote error={silence.error} doing={isForbidden(silence.error) ? "silence: you lack the right to create silences.muster.dev here" : "silence the alerts"} />}
    </Dialog>
  );
}

/** How many alerts the matchers fit now. */
function Count({ tenant, matchers, ready }: { tenant: string; matchers: readonly Matcher[]; ready: boolean }) {
  const all = useAllAlerts(tenant);
  let text: string;
  if (!ready) text = "";
  else if (all.error) text = "What it fits now can't be told";
  else if (!all.data) text = "Counting…";
  else {
    const fit = matching(all.data.alerts, matchers);
    text = fit === undefined ? "What it fits now can't be told" : `Fits ${all.data.whole ? "" : "at least "}${plural(fit.length, "current alert")}${fit.length === 0 ? "; it would silence what comes later" : ""}`;
  }
  return (
    <span className="small" role="status" data-testid="silence-count">
      {text}
    </span>
  );
}
