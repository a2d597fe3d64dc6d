import { useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { useSiteRows } from "../api/map-queries";
import { useVirtualSites } from "../api/queries";
import { useApply, useVirtual } from "../api/vk8s-queries";
import type { Applied, ApplyResult, Colour, VirtualKubernetes } from "../api/types";
import { CountsRow, StackedBar } from "../components/bars";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { useChosenVirtual, VirtualPicker } from "../components/virtual-picker";
import { colourName } from "../lib/colour";
import { formatCount, plural } from "../lib/format";
import { quoteValue } from "../lib/inventory";
import { siteKey, virtualSiteRef } from "../lib/site";
import { EXAMPLE, kindOf, reachOf, toShow, virtualRef, workloadPath, workloadsPath } from "../lib/workloads";

/** A form to apply objects to a virtual Kubernetes. */
export function DeployPage() {
  const chosen = useChosenVirtual();
  const one = chosen.one;
  useTitle("Deploy");
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={one ? workloadsPath(one) : "/workloads"}>← Workloads</Link>
      </p>
      <div className="page-head wide">
        <div>
          <h1>Deploy</h1>
          <p className="muted">{one ? `To the virtual Kubernetes ${virtualRef(one)} of ${one.tenant}, as server-side apply in your name.` : "Apply objects to a virtual Kubernetes."}</p>
        </div>
        <div className="row wrap">
          <VirtualPicker chosen={chosen} />
        </div>
      </div>
      {chosen.query.isPending && <Skeleton height={40} count={5} />}
      {chosen.query.error && !one && <ProblemNote error={chosen.query.error} doing="load the virtual Kubernetes" onRetry={() => void chosen.query.refetch()} />}
      {chosen.query.data && !one && (
        <div className="card">
          <Empty title="No virtual Kubernetes to deploy to">
            <Link className="button" href="/workloads">
              How to make one
            </Link>
          </Empty>
        </div>
      )}
      {one && <Form key={`${one.tenant}/${virtualRef(one)}`} of={one} />}
    </div>
  );
}

function Form({ of }: { of: VirtualKubernetes }) {
  const detail = useVirtual(of);
  const apply = useApply(of);
  const [, navigate] = useLocation();
  const [yaml, setYAML] = useState("");
  const [virtualSite, setVirtualSite] = useState("");
  const [force, setForce] = useState(false);
  /** What was asked about last, with the answer. */
  const [checked, setChecked] = useState<{ input: string; result: ApplyResult } | null>(null);
  const input = JSON.stringify([yaml, virtualSite, force]);
  const result = checked?.input === input ? checked.result : null;
  const good = result !== null && result.objects.every((o) => !o.error);
  const conflicts = result?.objects.some((o) => o.error?.conflict) ?? false;

  if (detail.data && !detail.data.rights.deploy) {
    return (
      <div className="card">
        <Empty title="You may look, not deploy">
          <p>
            You have no right to create and patch <code>deployments.apps</code> in the namespace{" "}
            <code>
              {of.tenant}-{of.namespace}
            </code>
            . Whoever administers it can grant it, such as with the cluster role <code>edit</code>.
          </p>
          <Link className="button" href={workloadsPath(of)}>
            See what runs
          </Link>
        </Empty>
      </div>
    );
  }
  const send = (dryRun: boolean) => {
    apply.mutate(
      { yaml, virtualSite, force, dryRun },
      {
        onSuccess: (r) => {
          setChecked({ input, result: r });
          const show = r.applied ? toShow(r.objects) : undefined;
          if (show) navigate(workloadPath({ virtual: of, kind: kindOf(show), name: show.name }));
        },
      },
    );
  };
  return (
    <form className="deploy" aria-label="Deploy"
      onSubmit={(e) => {
        e.preventDefault();
        if (!apply.isPending && yaml.trim()) send(!good);
      }}
    >
      <div className="stack">
        <div className="field">
          <div className="row spread">
            <label htmlFor="deploy-yaml" className="label">
              Objects as YAML, several apart by ---
            </label>
            {yaml.trim() === "" && (
              <button type="button" className="button" onClick={() => setYAML(EXAMPLE)}>
                Start from an example
              </button>
            )}
          </div>
          <textarea id="deploy-yaml" className="input" spellCheck={false} autoCapitalize="off" autoComplete="off" value={yaml} placeholder={"apiVersion: apps/v1\nkind: Deployment\n…"} onChange={(e) => setYAML(e.target.value)} />
        </div>
      </div>
      <div className="stack">
        <p className="visually-hidden" role="status">
          {result ? (good ? "The API server takes all of the objects" : "The API server refuses some of the objects") : ""}
        </p>
        <Where of={of} value={virtualSite} result={result} onChange={setVirtualSite} />
        {result && <Results result={result} />}
        {apply.error && <ProblemNote error={apply.error} doing={good ? "apply the objects" : "check the objects"} />}
        {(conflicts || force) && (
          <label className="row">
            <input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} />
            <span>Take over the fields that somebody else manages</span>
          </label>
        )}
        <div className="row wrap">
          <button type="submit" className="button primary" disabled={apply.isPending || yaml.trim() === ""}>
            {apply.isPending ? (good ? "Applying…" : "Checking…") : good ? `Apply ${plural(result.objects.length, "object")}` : "Check"}
          </button>
          <span className="muted small">{good ? "The API server takes all of them. Nothing is stored yet." : "Asks the API server what it would do. Nothing is stored."}</span>
        </div>
      </div>
    </form>
  );
}

/** How many of the sites are listed by name. */
const NAMED = 200;
const NOWHERE = { total: 0, counts: { green: 0, orange: 0, red: 0, grey: 0 }, sites: [] };

/** Where the objects go: the choice, and the sites that it reaches. */
function Where({ of, value, result, onChange }: { of: VirtualKubernetes; value: string; result: ApplyResult | null; onChange: (v: string) => void }) {
  const virtualSites = useVirtualSites();
  const offered = [...(virtualSites.data?.values() ?? [])].filter((v) => v.tenant === of.tenant && (v.namespace === "shared" || v.namespace === of.namespace)).map(virtualSiteRef).sort();
  const refs = useMemo(() => reachOf(of, value, result?.objects), [of, value, result]);
  const q = `virtualSite in (${refs.map(quoteValue).join(", ")}) phase!=Pending phase!=Decommissioned`;
  const fleet = useSiteRows({ q, tenant: of.tenant, sort: "score", columns: "colour", limit: NAMED }, refs.length > 0);
  const elsewhere = useSiteRows({ q: `${q} phase!=Online`, tenant: of.tenant, columns: "name", limit: 0 }, refs.length > 0);
  const held = refs.length === 0 ? NOWHERE : fleet.data;
  const away = refs.length === 0 ? 0 : (elsewhere.data?.total ?? 0);
  return (
    <section className="card" aria-label="Where it goes">
      <header>
        <h2>Where it goes</h2>
      </header>
      <div className="body stack">
        <div className="field">
          <label htmlFor="deploy-vs">Virtual site</label>
          <select id="deploy-vs" className={value ? "select set" : "select"} value={value} onChange={(e) => onChange(e.target.value)}>
            <option value="">As each object says, else {of.defaultVirtualSite}</option>
            {offered.map((v) => (
              <option key={v}>{v}</option>
            ))}
          </select>
          {value && <span className="hint">Written into each object as the annotation ves.io/virtual-sites.</span>}
        </div>
        {fleet.error && !held && <p className="muted small">Which sites that are can't be told: you may not list them, or they can't be loaded now.</p>}
        {!held && !fleet.error && <Skeleton height={16} count={2} />}
        {held && (
          <>
            <p role="status" data-reach={held.total}>
              {held.total === 0 ? "It reaches no site that you may see" : <b>It reaches {plural(held.total, "site")}</b>}
              {refs.length > 0 && <span className="muted"> of {refs.join(", ")}</span>}
              {away > 0 && <span className="muted">; {formatCount(away)} not connected, which get it when they are</span>}
            </p>
            {!value && !result && <p className="muted small">Objects that name virtual sites themselves are counted once they are checked.</p>}
            {held.total > 0 && (
              <>
                <div>
                  <StackedBar counts={held.counts} />
                  <div className="vs-counts">
                    <CountsRow counts={held.counts} />
                  </div>
                </div>
                <ul className="reach-names" tabIndex={0} aria-label="Sites that it reaches, worst first">
                  {held.sites.map((s) => (
                    <li key={siteKey(s)}>
                      <Shape colour={s.colour as Colour} size={10} />
                      {s.name}
                      <span className="visually-hidden">{colourName[s.colour as Colour]}</span>
                    </li>
                  ))}
                  {held.total > NAMED && <li className="muted">and {formatCount(held.total - NAMED)} more</li>}
                </ul>
              </>
            )}
          </>
        )}
      </div>
    </section>
  );
}

const CHANGE: Record<Applied["change"], string> = { create: "is made", change: "is changed", none: "stays as it is", "": "" };

function Results({ result }: { result: ApplyResult }) {
  const faults = result.objects.filter((o) => o.error).length;
  return (
    <section className="card" aria-label="What the API server says">
      <header>
        <h2>{faults > 0 ? `${plural(faults, "object")} would be refused` : "What it would do"}</h2>
      </header>
      <ul className="conditions">
        {result.objects.map((o, i) => (
          <li key={i} data-applied={`${o.kind}/${o.name}`}>
            <strong>
              {o.kind || `Document ${o.document}`} {o.name}
            </strong>{" "}
            {o.error ? <span className="bad-text">refused</span> : <span className="muted">{CHANGE[o.change]}</span>}
            {!o.error && o.virtualSites.length > 0 && <span className="muted"> on {o.virtualSites.join(", ")}</span>}
            {o.error && o.error.errors.length === 0 && <div className="fault">{o.error.detail}</div>}
            {o.error?.errors.map((e, n) => (
              <div key={n} className="fault">
                <code>{e.field}</code> {e.detail}
              </div>
            ))}
            {o.warnings.map((w) => (
              <div key={w} className="small muted">
                Warning: {w}
              </div>
            ))}
          </li>
        ))}
      </ul>
    </section>
  );
}
