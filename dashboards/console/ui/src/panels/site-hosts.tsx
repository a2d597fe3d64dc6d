import { Link } from "wouter";
import { useMeasuredBy, useTries, useVirtualHosts } from "../api/host-queries";
import type { VirtualHost } from "../api/types";
import { Shape } from "../components/shape";
import { DASH, formatCount } from "../lib/format";
import { addressOf, hostKey, hostPath, partsOf, siteHostQueries, triesColour, triesText } from "../lib/hosts";
import { formatRate } from "../lib/links";
import type { SiteRef } from "../lib/site";

/** The virtual hosts that a site serves or reaches; nothing where there are none. */
export function SiteHosts({ site, virtualSites }: { site: SiteRef; virtualSites: readonly string[] }) {
  const hosts = (useVirtualHosts(site.tenant).data ?? []).map((h) => ({ h, ...partsOf(h, virtualSites) })).filter((p) => p.provides || p.consumes);
  return hosts.length > 0 ? <Card site={site} hosts={hosts} /> : null;
}

function Card({ site, hosts }: { site: SiteRef; hosts: readonly { h: VirtualHost; provides: boolean; consumes: boolean }[] }) {
  const ask = siteHostQueries(site.name);
  const open = useMeasuredBy(site.tenant, ask.open, "host");
  const bytes = useMeasuredBy(site.tenant, ask.bytes, "host");
  const triesOf = useTries(site.tenant, ask, "host");
  return (
    <section className="card" aria-label="Virtual hosts of this site">
      <header>
        <h2>Virtual hosts</h2>
        <span className="muted small">Services shared between sites</span>
      </header>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of the site's virtual hosts">
        <table className="stacks">
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col">Here it is</th>
              <th scope="col" className="num">
                Open
              </th>
              <th scope="col" className="num">
                Both ways
              </th>
            </tr>
          </thead>
          <tbody>
            {hosts.map(({ h, provides, consumes }) => {
              const key = hostKey(h);
              const t = triesOf(key);
              return (
                <tr key={key} data-site-host={key}>
                  <th scope="row" className="vs-name">
                    <Link href={hostPath(h)}>{key}</Link>
                    <div className="muted small">{addressOf(h)}</div>
                  </th>
                  <td className="host-tries" data-label="Here it is">
                    {provides && consumes ? "served and reached" : provides ? "served" : "reached"}
                    <div className="row nowrap small muted" style={{ gap: 6 }}>
                      <Shape colour={triesColour(t)} size={10} />
                      {triesText(t)}
                    </div>
                  </td>
                  <td className="num" data-label="Open">
                    {open.has(key) ? formatCount(open.get(key)!) : DASH}
                  </td>
                  <td className="num nowrap" data-label="Both ways">
                    {formatRate(bytes.get(key) ?? null)}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
