import { useEffect, useMemo, useState } from "react";
import { Link, useSearch } from "wouter";
import { useQuery } from "@tanstack/react-query";
import { sessionQuery } from "../api/queries";
import { Problem } from "../api/client";
import { type TimelineQuestion, useTimeline } from "../api/timeline-queries";
import type { TimelineKind } from "../api/types";
import { EventList } from "../components/event-list";
import { TenantSelect } from "../components/filters";
import { useTitle } from "../components/shell";
import { Empty, ProblemNote, Skeleton } from "../components/states";
import { TimeRange } from "../components/time-range";
import { useAddress } from "../components/virtual-picker";
import { plural } from "../lib/format";
import { sitePath } from "../lib/site";
import { parseSpan, type TimeSpan } from "../lib/time-span";
import { DEFAULT_TIME, KINDS, kindName, parseKinds, TIMES } from "../lib/timeline";
import { SiteInput, VirtualSiteSelect } from "../panels/logs-filters";

const PAGE = 100;
const NONE = { kind: "", site: "", virtualSite: "", tenant: "", range: "", from: "", to: "" };

/** What happened in the fleet, at a site or in a virtual site. */
export function TimelinePage() {
  const search = useSearch();
  const ask = useMemo(() => {
    const q = new URLSearchParams(search);
    return { tenant: q.get("tenant") ?? "", site: q.get("site") ?? "", virtualSite: q.get("virtualSite") ?? "", kinds: parseKinds(q.get("kind")), span: parseSpan(q, TIMES, DEFAULT_TIME), limit: PAGE };
  }, [search]);
  const query = useTimeline(ask);
  const address = useAddress();
  useTitle("Timeline");
  const events = query.data?.pages.flatMap((p) => p.events);
  const missing = query.data?.pages[0]?.missing ?? [];
  const filtered = ask.kinds.length > 0 || ask.site !== "" || ask.virtualSite !== "" || ask.tenant !== "" || ask.span.range !== DEFAULT_TIME;
  return (
    <div className="page stack">
      <div>
        <h1>Timeline</h1>
        <p className="muted">
          <Where site={ask.site} virtualSite={ask.virtualSite} tenant={ask.tenant} /> The newest first.
        </p>
      </div>
      {query.error && <ProblemNote error={query.error} doing={events ? "refresh the timeline; this is older" : "read the timeline"} onRetry={() => void query.refetch()} />}
      {missing.map((m) => (
        <div className="note slim" role="status" key={`${m.role} ${m.at ?? ""}`}>
          <strong>
            The {m.role} role{m.at && ` at ${m.at}`} {m.late ? "has not answered yet" : "does not answer"}
          </strong>
          <span>{m.kinds.map((k) => kindName[k]).join(", ")} may be missing.</span>
        </div>
      ))}
      <Filters ask={ask} error={query.error} onChange={address} />
      {query.isPending && <Skeleton height={24} count={8} />}
      {events?.length === 0 && (
        <div className="card">
          <Empty title={filtered ? "Nothing matches" : "Nothing has happened yet"}>
            {filtered ? (
              <button type="button" className="button" onClick={() => address(NONE)}>
                Clear filters
              </button>
            ) : (
              <p>Colours, alerts, edits, rollouts and software of your sites will stand here.</p>
            )}
          </Empty>
        </div>
      )}
      {events && events.length > 0 && (
        <>
          <div className="card">
            <div className="body">
              <EventList events={events} showSite={ask.site === ""} top />
            </div>
          </div>
          <div className="row wrap spread">
            <p className="muted small" role="status">
              {plural(events.length, "event")}
              {query.hasNextPage ? ", and older ones" : ""}
            </p>
            {query.hasNextPage && (
              <button type="button" className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                Show older ones
              </button>
            )}
          </div>
        </>
      )}
    </div>
  );
}

function Where({ site, virtualSite, tenant }: { site: string; virtualSite: string; tenant: string }) {
  if (site) {
    return (
      <>
        What happened at <Link href={sitePath({ tenant, name: site })}>{site}</Link>.
      </>
    );
  }
  if (virtualSite) return <>What happened at the sites of {virtualSite}.</>;
  return <>What happened in the fleet.</>;
}

function Filters({ ask, error, onChange }: { ask: TimelineQuestion & { span: TimeSpan }; error: unknown; onChange: (c: Record<string, string>) => void }) {
  const tenants = useQuery(sessionQuery).data?.tenants ?? [];
  const [site, setSite] = useState(ask.site ?? "");
  useEffect(() => setSite(ask.site ?? ""), [ask.site]);
  const toggle = (k: TimelineKind) => onChange({ kind: KINDS.filter((x) => (x === k) !== ask.kinds.includes(x)).join(",") });
  const fault = (field: string) => (error instanceof Problem ? error.fieldFault(field) : "");
  return (
    <div className="stack" role="search" aria-label="Filter the timeline">
      <div className="row wrap event-kinds" role="group" aria-label="Kinds">
        {KINDS.map((k) => (
          <button key={k} type="button" className="button" aria-pressed={ask.kinds.includes(k)} onClick={() => toggle(k)}>
            {kindName[k]}
          </button>
        ))}
      </div>
      <div className="log-choices">
        <TenantSelect value={ask.tenant} tenants={tenants} width={150} onChange={(tenant) => onChange({ tenant })} />
        <VirtualSiteSelect tenant={ask.tenant} value={ask.virtualSite ?? ""} onChange={(virtualSite) => onChange({ virtualSite })} />
        <SiteInput tenant={ask.tenant} value={site} set={ask.site !== ""} onChange={setSite} onCommit={() => site.trim() !== ask.site && onChange({ site: site.trim() })} />
        <TimeRange span={ask.span} ranges={TIMES} faults={{ from: fault("from"), to: fault("to") }} onChange={(s) => onChange({ ...s, range: s.range === DEFAULT_TIME ? "" : s.range })} />
        {(ask.site || ask.virtualSite) && (
          <button type="button" className="button" onClick={() => onChange({ site: "", virtualSite: "" })}>
            All sites
          </button>
        )}
      </div>
    </div>
  );
}
