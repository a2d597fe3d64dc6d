import { Link } from "wouter";
import { useMeasuredBy, useTries } from "../api/host-queries";
import { useInventoryRows } from "../api/inventory-queries";
import { useSiteObject } from "../api/queries";
import type { Colour, SiteRow, VirtualHost } from "../api/types";
import { Shape } from "../components/shape";
import { ProblemNote, Skeleton } from "../components/states";
import { DASH, formatCount, plural } from "../lib/format";
import { hostKey, partsOf, siteQueries, sitesQuery, type Tries, triesColour, triesText } from "../lib/hosts";
import { formatRate } from "../lib/links";
import { sitePath, type SiteRef } from "../lib/site";

/** Which sites are shown: all, or those with one part in the host. */
export type Part = "" | "provides" | "consumes";

const PARTS: readonly (readonly [Part, string])[] = [
  ["", "All"],
  ["provides", "Serve it"],
  ["consumes", "Reach it"],
];

/** As many sites as figures are asked for at once. */
const SHOWN = 50;

const COLUMNS = ["name", "virtualSite", "regional", "region"];

/** The sites of a host, each with what it measured. */
export function HostSites({ host, part, onPart, empty }: { host: VirtualHost; part: Part; onPart: (p: Part) => void; empty: boolean }) {
  const q = part === "consumes" && empty ? "" : sitesQuery(host, part);
  const rows = useInventoryRows({ q, sort: "name", columns: COLUMNS, tenant: host.tenant, group: "", open: undefined }, "", q !== "");
  const total = q === "" ? 0 : (rows.data?.pages[0]?.total ?? 0);
  const sites = (q === "" ? [] : (rows.data?.pages.flatMap((p) => p.sites) ?? [])).slice(0, SHOWN);
  const ask = siteQueries(hostKey(host), sites.map((s) => s.name));
  const [tenant, any] = [host.tenant, sites.length > 0];
  const figures = {
    open: useMeasuredBy(tenant, any ? ask.open : "", "site", "direction"),
    bytes: useMeasuredBy(tenant, any ? ask.bytes : "", "site", "direction"),
    tries: useTries(tenant, any ? ask : { tried: "", failed: "" }, "site", "direction"),
  };
  return (
    <section className="card" aria-label="Sites of the virtual host">
      <header>
        <h2>What its sites report</h2>
        <div className="segmented" role="group" aria-label="Sites shown">
          {PARTS.map(([p, text]) => (
            <button key={p} type="button" aria-pressed={p === part} onClick={() => onPart(p)}>
              {text}
            </button>
          ))}
        </div>
      </header>
      {rows.error && (
        <div className="body">
          <ProblemNote slim error={rows.error} doing={rows.data ? "refresh the sites; these are older" : "list the sites"} onRetry={() => void rows.refetch()} />
        </div>
      )}
      {q !== "" && rows.isPending && !rows.error && (
        <div className="body">
          <Skeleton height={24} count={4} />
        </div>
      )}
      {(q === "" || rows.data) && total === 0 && <p className="body muted">{part === "consumes" ? "It is advertised to no site." : part === "provides" ? `${host.virtualSite} has no sites.` : "No site has a part in it."}</p>}
      {sites.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Table of sites of the virtual host">
          <table className="stacks">
            <thead>
              <tr>
                <th scope="col">Site</th>
                <th scope="col">Part</th>
                <th scope="col">Connections to it</th>
                <th scope="col">Regional</th>
                <th scope="col" className="num">
                  Open
                </th>
                <th scope="col" className="num">
                  Both ways
                </th>
              </tr>
            </thead>
            <tbody>
              {sites.map((s) => (
                <Row key={s.name} host={host} site={s} figures={figures} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {total > sites.length && (
        <p className="body muted small">
          {formatCount(sites.length)} of {plural(total, "site")}, by name. <Link href={`/sites?${new URLSearchParams({ q, tenant: host.tenant }).toString()}`}>All of them</Link>
        </p>
      )}
    </section>
  );
}

interface Figures {
  open: Map<string, number>;
  bytes: Map<string, number>;
  tries: (key: string) => Tries | undefined;
}

function Row({ host, site, figures }: { host: VirtualHost; site: SiteRow; figures: Figures }) {
  const ref = { tenant: site.tenant, name: site.name };
  const virtualSites = Array.isArray(site.virtualSite) ? site.virtualSite : [];
  const { provides, consumes } = partsOf(host, virtualSites);
  // Both ends of a connection count it; a site that has both parts is seen as who reaches it.
  const direction = consumes ? "out" : "in";
  const at = `${site.name} ${direction}`;
  const tries = figures.tries(at);
  const phase = String(site.phase ?? "");
  return (
    <tr data-host-site={site.name}>
      <th scope="row" className="vs-name">
        <span className="row nowrap" style={{ gap: 6 }}>
          <Shape colour={(site.colour as Colour) ?? "grey"} size={11} label />
          <Link href={sitePath(ref)}>{site.name}</Link>
        </span>
        {phase !== "Online" && <div className="small host-fault">{phase.toLowerCase()}</div>}
      </th>
      <td className="host-part" data-label="Part">{provides && consumes ? "serves and reaches" : provides ? "serves" : "reaches"}</td>
      <td className="host-tries" data-label="Connections to it">
        <span className="row nowrap" style={{ gap: 6 }}>
          <Shape colour={triesColour(tries)} size={10} />
          {triesText(tries)}
        </span>
        {(tries?.failed ?? 0) > 0 && <LastError site={ref} />}
      </td>
      <td data-label="Regional">{site.regional ? String(site.regional) : DASH}</td>
      <td className="num" data-label="Open">
        {figures.open.has(at) ? formatCount(figures.open.get(at)!) : DASH}
      </td>
      <td className="num nowrap" data-label="Both ways">
        {formatRate(figures.bytes.get(at) ?? null)}
      </td>
    </tr>
  );
}

/** What the site says of its last attempts, while they fail. */
function LastError({ site }: { site: SiteRef }) {
  const c = useSiteObject(site).data?.conditions.find((x) => x.type === "VirtualHostReachable" && x.status === "False");
  return c?.message ? <div className="small host-fault">{c.message}</div> : null;
}
