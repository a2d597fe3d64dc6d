import { useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useTries, useVirtualHosts } from "../api/host-queries";
import type { VirtualHost } from "../api/types";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { formatCount, plural } from "../lib/format";
import { addressOf, consumersOf, hostColour, hostKey, hostPath, hostQueries, hostReach, hostsPath } from "../lib/hosts";
import { virtualSitePath } from "../lib/site";
import { HostLinks } from "../panels/host-links";
import { HostSites, type Part } from "../panels/host-sites";

/** One virtual host: who serves it, who reaches it, and how that goes. */
export function VirtualHostPage({ namespace, name }: { namespace: string; name: string }) {
  const search = new URLSearchParams(useSearch());
  const tenant = search.get("tenant") ?? "";
  const query = useVirtualHosts(tenant);
  useTitle(name);
  const found = useMemo(() => (query.data ?? []).filter((h) => h.namespace === namespace && h.name === name), [query.data, namespace, name]);
  return (
    <div className="page stack">
      <p className="crumb">
        <Link href={hostsPath}>← Virtual hosts</Link>
      </p>
      {query.isPending && (
        <>
          <h1>{name}</h1>
          <Skeleton height={40} count={5} />
        </>
      )}
      {query.error && !query.data && <h1>{name}</h1>}
      {query.error && <ProblemNote slim={found.length > 0} error={query.error} doing={found.length > 0 ? "refresh the virtual host; this is older" : "load the virtual host"} onRetry={() => void query.refetch()} />}
      {query.data && found.length === 0 && (
        <div className="card">
          <Empty page title="There is no such virtual host">
            <p>
              No {namespace}/{name} is among those that you may read. It may have been deleted.
            </p>
            <Link href={hostsPath} className="button">
              All virtual hosts
            </Link>
          </Empty>
        </div>
      )}
      {found.length > 1 && (
        <div className="card">
          <Empty page title={`Several tenants have a virtual host ${namespace}/${name}`}>
            <ul className="row wrap">
              {found.map((h) => (
                <li key={h.tenant}>
                  <Link className="button" href={hostPath(h)}>
                    {h.tenant}
                  </Link>
                </li>
              ))}
            </ul>
          </Empty>
        </div>
      )}
      {found.length === 1 && <Loaded host={found[0]!} part={partOf(search.get("part"))} />}
    </div>
  );
}

const partOf = (text: string | null): Part => (text === "provides" || text === "consumes" ? text : "");

function Loaded({ host: h, part }: { host: VirtualHost; part: Part }) {
  const [, navigate] = useLocation();
  const colour = hostColour(h, useTries(h.tenant, hostQueries, "host")(hostKey(h)));
  return (
    <>
      <header className="stack" style={{ gap: 6 }}>
        <h1 className="row wrap">
          <Shape colour={colour} size={18} />
          <span className="visually-hidden">{hostReach[colour]}: </span>
          {hostKey(h)}
        </h1>
        <p className="muted">
          <code>{addressOf(h)}</code> · {h.protocol} · tenant {h.tenant} · made <Ago time={h.createdAt} />
        </p>
        {!h.ready && <p>{h.message || "The control plane has not looked at it yet."}</p>}
      </header>
      <div className="host-ends">
        <section className="card" aria-label="Served by">
          <header>
            <h2>Served by</h2>
            <span className="muted small">
              {formatCount(h.providersOnline)} of {plural(h.providers, "site")} online
            </span>
          </header>
          <div className="body stack" style={{ gap: 4 }}>
            <VirtualSiteLink tenant={h.tenant} name={h.virtualSite} />
            <span className="muted small">
              by the Service <code>{h.service}:{h.servicePort}</code> of namespace {h.namespace}
            </span>
            {h.routes.length > 0 && (
              <ul className="small stack" style={{ gap: 2 }} aria-label="Routes">
                {h.routes.map((r) => (
                  <li key={r.host + r.path}>
                    <code>{r.host + r.path}</code> <span className="muted">→</span> <code>{r.service}:{r.servicePort}</code>
                  </li>
                ))}
              </ul>
            )}
          </div>
        </section>
        <span className="host-arrow" aria-hidden>
          ←
        </span>
        <section className="card" aria-label="Reached from">
          <header>
            <h2>Reached from</h2>
            <span className="muted small">{plural(h.consumers, "site")}</span>
          </header>
          <div className="body stack" style={{ gap: 10 }}>
            {h.policies.length === 0 && <p className="muted">No AdvertisePolicy that you may read names it.</p>}
            {h.policies.map((p) => (
              <div key={p.name} className="stack" style={{ gap: 4 }} data-policy={p.name}>
                <span className="row wrap" style={{ gap: 8 }}>
                  {p.virtualSites.map((v) => (
                    <VirtualSiteLink key={v} tenant={h.tenant} name={v} />
                  ))}
                </span>
                <span className="muted small">
                  by the AdvertisePolicy {p.name}, {plural(p.sites, "site")}
                </span>
                {p.fault && <span className="small host-fault">{p.fault}</span>}
              </div>
            ))}
          </div>
        </section>
      </div>
      <HostSites host={h} part={part} onPart={(p) => navigate(p ? `${hostPath(h)}&part=${p}` : hostPath(h), { replace: true })} empty={consumersOf(h).length === 0} />
      <HostLinks tenant={h.tenant} host={hostKey(h)} />
    </>
  );
}

function VirtualSiteLink({ tenant, name: ref }: { tenant: string; name: string }) {
  const [namespace = "", name = ""] = ref.split("/");
  return <Link href={virtualSitePath({ tenant, namespace, name })}>{ref}</Link>;
}
