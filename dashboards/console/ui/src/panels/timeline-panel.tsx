import { Link } from "wouter";
import { useTimeline } from "../api/timeline-queries";
import { EventList } from "../components/event-list";
import { ProblemNote, Skeleton } from "../components/states";

const SHOWN = 12;

/** The newest of what happened at a site or a virtual site, with the way to all of it. */
export function TimelinePanel({ scope, showSite }: { scope: { tenant: string; site?: string; virtualSite?: string }; showSite?: boolean }) {
  const query = useTimeline({ ...scope, kinds: [], limit: SHOWN });
  const first = query.data?.pages[0];
  const all = `/timeline?${new URLSearchParams(scope as Record<string, string>).toString()}`;
  return (
    <section className="card" aria-label="Timeline">
      <header>
        <h2>Timeline</h2>
        <Link href={all}>All of it</Link>
      </header>
      {query.error && <ProblemNote slim error={query.error} doing="read the timeline" onRetry={() => void query.refetch()} />}
      <div className="body">
        {query.isPending && <Skeleton height={20} count={4} />}
        {first?.events.length === 0 && <p className="muted">Nothing has happened here in the last 90 days.</p>}
        {first && first.events.length > 0 && <EventList events={first.events} showSite={showSite ?? false} />}
      </div>
    </section>
  );
}
