import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { Link, useSearch } from "wouter";
import { useMeasuredBy, useTries, useVirtualHosts } from "../api/host-queries";
import { sessionQuery } from "../api/queries";
import type { VirtualHost } from "../api/types";
import { TenantSelect, useTyped } from "../components/filters";
import { Shape } from "../components/shape";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { useAddress } from "../components/virtual-picker";
import { DASH, formatCount, plural } from "../lib/format";
import { addressOf, consumersOf, hostColour, hostKey, hostPath, hostQueries, hostReach, triesText } from "../lib/hosts";
import { formatRate } from "../lib/links";

/** Services of some sites that others reach by name. */
export function VirtualHostsPage() {
  useTitle("Virtual hosts");
  const asked = new URLSearchParams(useSearch());
  const tenant = asked.get("tenant") ?? "";
  const address = useAddress();
  const [q, setQ] = useTyped(asked.get("q") ?? "", useCallback((text: string) => address({ q: text }), [address]));
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const query = useVirtualHosts(tenant);
  const all = useMemo(() => [...(query.data ?? [])].sort((a, b) => Number(a.ready) - Number(b.ready) || (hostKey(a) < hostKey(b) ? -1 : 1)), [query.data]);
  const text = q.trim().toLowerCase();
  const shown = all.filter((h) => `${hostKey(h)} ${addressOf(h)} ${h.service} ${h.virtualSite} ${consumersOf(h).join(" ")}`.toLowerCase().includes(text));
  const owners = [...new Set(shown.map((h) => h.tenant))].sort();
  return (
    <div className="page stack">
      <div className="page-head wide">
        <div>
          <h1>Virtual hosts</h1>
          <p className="muted">Services of some sites that others reach by name, through the regionals and encrypted from site to site.</p>
        </div>
        <div className="row wrap">
          {(all.length > 5 || q !== "") && <input className="input" style={{ width: 220 }} type="search" aria-label="Search virtual hosts" placeholder="Search…" value={q} onChange={(e) => setQ(e.target.value)} />}
          <TenantSelect value={tenant} tenants={tenants} width={150} onChange={(t) => address({ tenant: t })} />
        </div>
      </div>
      {query.error && <ProblemNote error={query.error} doing={query.data ? "refresh the virtual hosts; these are older" : "load the virtual hosts"} onRetry={() => void query.refetch()} />}
      {query.isPending && (
        <div className="card">
          <div className="body">
            <Skeleton height={32} count={4} />
          </div>
        </div>
      )}
      {query.data && all.length === 0 && (
        <div className="card">
          <Empty title="No virtual hosts yet">
            <p>A VirtualHost names a Service and the virtual site that serves it; an AdvertisePolicy says from which virtual sites it is reached.</p>
            <Command text="kubectl explain virtualhosts.spec" />
          </Empty>
        </div>
      )}
      {all.length > 0 && shown.length === 0 && (
        <div className="card">
          <Empty title="No virtual host matches">
            <button type="button" className="button" onClick={() => setQ("")}>
              Clear the search
            </button>
          </Empty>
        </div>
      )}
      {owners.map((t) => (
        <HostTable key={t} tenant={t} hosts={shown.filter((h) => h.tenant === t)} named={owners.length > 1} />
      ))}
      {all.length > 0 && <p className="muted small">{plural(all.length, "virtual host")}</p>}
    </div>
  );
}

function HostTable({ tenant, hosts, named }: { tenant: string; hosts: readonly VirtualHost[]; named: boolean }) {
  const open = useMeasuredBy(tenant, hostQueries.open, "host");
  const bytes = useMeasuredBy(tenant, hostQueries.bytes, "host");
  const triesOf = useTries(tenant, hostQueries, "host");
  return (
    <section className="stack" style={{ gap: 8 }} aria-label={`Virtual hosts of ${tenant}`}>
      {named && <h2>{tenant}</h2>}
      <div className="card table-wrap" tabIndex={0} role="region" aria-label={`Table of virtual hosts of ${tenant}`}>
        <table className="stacks host-table">
          <thead>
            <tr>
              <th scope="col">Virtual host</th>
              <th scope="col">Served by</th>
              <th scope="col">Reached from</th>
              <th scope="col" className="num">
                Open
              </th>
              <th scope="col" className="num">
                Both ways
              </th>
              <th scope="col">Attempts</th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((h) => {
              const key = hostKey(h);
              const tries = triesOf(key);
              const colour = hostColour(h, tries);
              return (
                <tr key={key} data-host={key}>
                  <th scope="row" className="vs-name">
                    <span className="row nowrap" style={{ gap: 6 }}>
                      <Shape colour={colour} size={12} />
                      <span className="visually-hidden">{hostReach[colour]}</span>
                      <Link href={hostPath(h)}>{key}</Link>
                    </span>
                    <div className="muted small">
                      <code>{addressOf(h)}</code>
                      {h.protocol !== "TCP" && ` · ${h.protocol}${h.routes.length > 0 ? `, ${plural(h.routes.length, "route")}` : ""}`}
                    </div>
                    {!h.ready && h.message && <div className="small host-fault">{h.message}</div>}
                  </th>
                  <td className="host-tries" data-label="Served by">
                    {h.virtualSite}
                    <div className="muted small">
                      {formatCount(h.providersOnline)} of {plural(h.providers, "site")} online
                    </div>
                  </td>
                  <td className="host-tries" data-label="Reached from">
                    {consumersOf(h).join(", ") || DASH}
                    <div className="muted small">{plural(h.consumers, "site")}</div>
                  </td>
                  <td className="num" data-label="Open">
                    {open.has(key) ? formatCount(open.get(key)!) : DASH}
                  </td>
                  <td className="num nowrap" data-label="Both ways">
                    {formatRate(bytes.get(key) ?? null)}
                  </td>
                  <td className="host-tries" data-label="Attempts">{triesText(tries)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
