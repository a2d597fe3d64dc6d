import { useState } from "react";
import { Link } from "wouter";
import { useMeasured, useMeasuredBy, useRegionalsOf } from "../api/host-queries";
import { Shape } from "../components/shape";
import { ProblemNote, Skeleton } from "../components/states";
import { colourName } from "../lib/colour";
import { DASH, formatCount, plural } from "../lib/format";
import { hostPath, linkQueries, MOST_LINKS, pointsOf } from "../lib/hosts";
import { formatRate } from "../lib/links";
import { sitePath } from "../lib/site";

interface Props {
  tenant: string;
  /** NAMESPACE/NAME; "": of all hosts of the tenant. */
  host: string;
}

/** Links that are shown before somebody asks for the others. */
const FIRST = 10;

interface Row {
  host: string;
  site: string;
  peer: string;
  bytes: number;
}

/** The links between services of sites: who reaches which host at whom, and what passes. The busiest first, after those that fail. */
export function HostLinks({ tenant, host }: Props) {
  const [all, setAll] = useState(false);
  const ask = linkQueries(host);
  const busiest = useMeasured(tenant, ask.busiest);
  const open = useMeasuredBy(tenant, ask.open, "host", "site", "peer");
  const total = pointsOf(useMeasured(tenant, ask.total).data)[0]?.value ?? 0;
  const failing = useMeasured(tenant, ask.failing);
  const rows: Row[] = pointsOf(busiest.data)
    .map(({ metric: m, value }) => ({ host: m.host ?? "", site: m.site ?? "", peer: m.peer ?? "", bytes: value }))
    .sort((a, b) => b.bytes - a.bytes || (`${a.host} ${a.site} ${a.peer}` < `${b.host} ${b.site} ${b.peer}` ? -1 : 1));
  const peers = [...new Set(rows.map((r) => r.peer).filter(Boolean))].sort();
  const regionals = useRegionalsOf(tenant, peers).data;
  const failed = pointsOf(failing.data)
    .map(({ metric: m, value }) => ({ host: m.host ?? "", site: m.site ?? "", n: value }))
    .sort((a, b) => b.n - a.n);
  const error = busiest.error ?? failing.error;
  const known = busiest.data !== undefined;
  return (
    <section className="card" aria-label={`Links between services of ${tenant}`} data-host-links={tenant}>
      <header>
        <h2>Between services of sites</h2>
        <span className="muted small">
          {tenant}
          {total > rows.length ? ` · the ${formatCount(rows.length)} busiest of ${plural(total, "link")}` : rows.length > 0 ? ` · ${plural(rows.length, "link")}` : ""}
        </span>
      </header>
      {error && (
        <div className="body">
          <ProblemNote slim error={error} doing={known ? "refresh these links; they are older" : "read what sites measured"} onRetry={() => void Promise.all([busiest.refetch(), failing.refetch()])} />
        </div>
      )}
      {!error && !known && (
        <div className="body">
          <Skeleton height={24} count={3} />
        </div>
      )}
      {failed.length > 0 && (
        <ul className="body host-failed" aria-label="Hosts that sites could not reach">
          {failed.slice(0, 5).map((f) => (
            <li key={`${f.host} ${f.site}`} data-failing={`${f.host} ${f.site}`}>
              <Shape colour="red" size={11} />
              <span>
                <Link href={sitePath({ tenant, name: f.site })}>{f.site}</Link> could not reach <HostName tenant={tenant} host={f.host} /> {plural(f.n, "time")} in the last hour
              </span>
            </li>
          ))}
          {failed.length > 5 && <li className="muted small">{failed.length === MOST_LINKS ? "and many more sites" : `and ${plural(failed.length - 5, "more site")}`}</li>}
        </ul>
      )}
      {known && rows.length === 0 && <p className="body muted">No site has connected to a host of another one yet.</p>}
      {rows.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label={`Table of links between services of ${tenant}`}>
          <table className="stacks">
            <thead>
              <tr>
                <th scope="col">From</th>
                <th scope="col">To</th>
                {!host && <th scope="col">Virtual host</th>}
                <th scope="col" title="The regional that the serving site is connected to: it carries the bytes, which it can't read">
                  Carried by
                </th>
                <th scope="col" className="num">
                  Open
                </th>
                <th scope="col" className="num">
                  Both ways
                </th>
              </tr>
            </thead>
            <tbody>
              {(all ? rows : rows.slice(0, FIRST)).map((r) => {
                const key = `${r.host} ${r.site} ${r.peer}`;
                const connections = open.get(key) ?? 0;
                return (
                  <tr key={key} data-host-link={key}>
                    <th scope="row" className="vs-name">
                      <Link href={sitePath({ tenant, name: r.site })}>{r.site}</Link>
                    </th>
                    <td className="host-peer" data-label="To">
                      <span className="row nowrap" style={{ gap: 6 }}>
                        <Shape colour={connections > 0 || r.bytes > 0 ? "green" : "grey"} size={11} />
                        <span className="visually-hidden">{connections > 0 || r.bytes > 0 ? "in use" : colourName.grey}</span>
                        {r.peer ? <Link href={sitePath({ tenant, name: r.peer })}>{r.peer}</Link> : <span className="muted">further sites</span>}
                      </span>
                    </td>
                    {!host && (
                      <td data-label="Virtual host">
                        <HostName tenant={tenant} host={r.host} />
                      </td>
                    )}
                    <td data-label="Carried by">{r.peer === r.site ? <span className="muted">stays on the site</span> : regionals?.get(r.peer) || DASH}</td>
                    <td className="num" data-label="Open">
                      {formatCount(connections)}
                    </td>
                    <td className="num nowrap" data-label="Both ways">
                      {formatRate(r.bytes)}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {rows.length > FIRST && (
        <div className="body">
          <button type="button" className="button" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? `Show the first ${FIRST}` : `Show all ${formatCount(rows.length)}`}
          </button>
        </div>
      )}
    </section>
  );
}

function HostName({ tenant, host }: { tenant: string; host: string }) {
  const [namespace = "", name = ""] = host.split("/");
  return <Link href={hostPath({ tenant, namespace, name })}>{host}</Link>;
}
