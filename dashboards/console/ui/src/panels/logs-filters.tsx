import { useDeferredValue, useEffect, useId, useMemo, useRef, useState } from "react";
import { Problem } from "../api/client";
import { useSiteRows } from "../api/map-queries";
import { useVirtualSites } from "../api/queries";
import { LOG_RANGES, LOG_SEVERITIES, type LogFilter } from "../lib/log-filter";
import { quoteValue } from "../lib/inventory";
import { virtualSiteRef } from "../lib/site";
import { TenantSelect } from "../components/filters";
import { SeverityMark } from "../components/severity";
import { TimeRange } from "../components/time-range";

interface Props {
  filter: LogFilter;
  tenant: string;
  tenants: readonly string[];
  error: unknown;
  busy: boolean;
  onChange: (f: Partial<LogFilter>) => void;
}

/** What to search for. Words are searched for with Enter; choices at once. */
export function LogFilters({ filter, tenant, tenants, error, busy, onChange }: Props) {
  const [query, setQuery] = useState(filter.query);
  const [site, setSite] = useState(filter.site);
  const [namespace, setNamespace] = useState(filter.namespace);
  useEffect(() => setQuery(filter.query), [filter.query]);
  useEffect(() => setSite(filter.site), [filter.site]);
  useEffect(() => setNamespace(filter.namespace), [filter.namespace]);
  const fault = (field: string) => (error instanceof Problem ? error.fieldFault(field) : "");
  const typed = { query, site: site.trim(), namespace: namespace.trim() };
  const change = (f: Partial<LogFilter>) => onChange({ ...typed, ...f });
  const toggle = (s: string) => change({ severity: filter.severity.includes(s) ? filter.severity.filter((x) => x !== s) : [...filter.severity, s] });
  const commit = () => {
    if (typed.site !== filter.site || typed.namespace !== filter.namespace) change({});
  };
  const shown = [...LOG_SEVERITIES, ...filter.severity.filter((s) => !(LOG_SEVERITIES as readonly string[]).includes(s))];
  return (
    <form
      className="log-filters"
      role="search"
      aria-label="Search logs"
      onSubmit={(e) => {
        e.preventDefault();
        onChange(typed);
      }}
    >
      <div className="log-query">
        <div className="log-query-field">
          <input className="input mono" type="search" aria-label="Query" placeholder='Words, "a phrase", severity:error AND namespace:shop …' spellCheck={false} autoCapitalize="off" autoComplete="off" maxLength={4096}
            value={query} aria-invalid={fault("query") !== ""} aria-describedby="log-query-fault" onChange={(e) => setQuery(e.target.value)} />
          <Syntax />
        </div>
        <button type="submit" className="button primary" aria-busy={busy}>
          Search
        </button>
        <p id="log-query-fault" className="fault" role="alert">
          {fault("query")}
        </p>
      </div>
      <div className="log-choices">
        <TenantSelect one value={tenant} tenants={tenants} onChange={(t) => change({ tenant: t, virtualSite: "", site: "" })} />
        <VirtualSiteSelect tenant={tenant} value={filter.virtualSite} onChange={(virtualSite) => change({ virtualSite })} />
        <SiteInput tenant={tenant} value={site} set={filter.site !== ""} onChange={setSite} onCommit={commit} many />
        <input className={filter.namespace ? "input set" : "input"} aria-label="Namespace" placeholder="All namespaces" title="Kubernetes namespaces on the sites; several with commas" spellCheck={false}
          autoCapitalize="off" value={namespace} onChange={(e) => setNamespace(e.target.value)} onBlur={commit} />
        <div className="segmented severities" role="group" aria-label="Severity">
          {shown.map((s) => (
            <button key={s} type="button" aria-pressed={filter.severity.includes(s)} onClick={() => toggle(s)}>
              <SeverityMark severity={s} size={10} />
              {s}
            </button>
          ))}
        </div>
        <TimeRange span={filter} ranges={LOG_RANGES} faults={{ from: fault("from"), to: fault("to") }} onChange={(s) => change({ ...s, ...(s.range === "" && { live: false }) })} />
      </div>
    </form>
  );
}

/** Chooses among a tenant's virtual sites. */
export function VirtualSiteSelect({ tenant, value, onChange }: { tenant: string; value: string; onChange: (v: string) => void }) {
  const { data } = useVirtualSites();
  const options = useMemo(() => [...new Set([...(data?.values() ?? [])].filter((v) => !tenant || v.tenant === tenant).map(virtualSiteRef))].sort(), [data, tenant]);
  return (
    <select className={value ? "select set" : "select"} aria-label="Virtual site" value={value} onChange={(e) => onChange(e.target.value)}>
      <option value="">All virtual sites</option>
      {(value && !options.includes(value) ? [value, ...options] : options).map((o) => (
        <option key={o}>{o}</option>
      ))}
    </select>
  );
}

const OFFERED = 40;

/** A site's name, with those of the fleet offered; many: several with commas. */
export function SiteInput({ tenant, value, set, onChange, onCommit, many }: { tenant: string; value: string; set: boolean; onChange: (v: string) => void; onCommit: () => void; many?: boolean }) {
  const id = useId();
  const start = many ? value.slice(0, value.lastIndexOf(",") + 1) : "";
  const word = value.slice(start.length).trim().toLowerCase();
  const deferred = useDeferredValue(word);
  const { data } = useSiteRows({ q: deferred ? `name~${quoteValue(deferred)}` : "", tenant, columns: "name", limit: OFFERED });
  const offered = useMemo(() => [...new Set(data?.sites.map((s) => s.name) ?? [])], [data]);
  return (
    <>
      <input className={set ? "input set" : "input"} aria-label="Site" placeholder="All sites" title={many ? "Names of sites; several with commas" : "Name of a site"} spellCheck={false} autoCapitalize="off" list={id} value={value}
        onChange={(e) => onChange(e.target.value)} onBlur={onCommit}
        onKeyDown={(e) => {
          if (e.key === "Enter" && !many) onCommit();
        }} />
      <datalist id={id}>
        {offered.map((n) => (
          <option key={n} value={start + n} />
        ))}
      </datalist>
    </>
  );
}

const EXAMPLES: [string, string][] = [
  ["timeout", "the word, in the message"],
  ['"out of memory"', "the words, next to each other"],
  ["severity:error", "a field's value; severity in any case"],
  ["pod:(checkout-1 OR web-1)", "several values of one field"],
  ["pod:checkout-*", "* is any run of characters, ? any one"],
  ["labels.app:web", "a label of the line"],
  ["labels.status:>=500", "numbers; [500 TO 599] is a range, * an open end"],
  ["labels.path:/\\/api\\/v[12].*/", "a regular expression that the whole value, or a word of the message, fits"],
  ["pod:*", "the field is there"],
  ["a AND b, a b", "both"],
  ["a OR b", "one of them"],
  ["NOT a, -a", "without it"],
  ["@timestamp:>=now-10m", "a time; [2026-11-21 TO now-1h] is a range"],
];

/** How to write a query. */
function Syntax() {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open) return;
    const outside = (e: PointerEvent) => {
      if (!box.current?.contains(e.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  return (
    <div
      ref={box}
      className="log-help"
      onKeyDown={(e) => {
        if (e.key !== "Escape" || !open) return;
        e.stopPropagation();
        setOpen(false);
        button.current?.focus();
      }}
    >
      <button ref={button} type="button" className="button quiet icon" aria-label="How to write a query" aria-expanded={open} aria-controls={id} title="How to write a query" onClick={() => setOpen(!open)}>
        ?
      </button>
      <div id={id} className="popover card" role="region" aria-label="How to write a query" tabIndex={0} hidden={!open}>
        <dl>
          {EXAMPLES.map(([q, what]) => (
            <div key={q}>
              <dt>
                <code>{q}</code>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <p className="hint">
          Fields: message, severity, site, region, node, namespace, pod, container, unit, stream, id, labels.NAME. A character with a meaning of its own is taken as it stands after \ or
          in quotes. Words side by side must all be there; NOT binds tighter than AND, AND tighter than OR.
        </p>
      </div>
    </div>
  );
}
