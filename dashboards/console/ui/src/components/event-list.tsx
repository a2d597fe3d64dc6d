import { Link } from "wouter";
import type { TimelineEvent } from "../api/types";
import { byDay, kindName } from "../lib/timeline";
import { sitePath } from "../lib/site";
import { formatAbsolute, formatClock, zoned } from "../lib/time";
import { SeverityMark } from "./severity";
import { useNow } from "./time";

/** Events under their days, the newest first. showSite: they are of more than one site. top: they are all of the page. */
export function EventList({ events, showSite, top }: { events: readonly TimelineEvent[]; showSite?: boolean; top?: boolean }) {
  const Heading = top ? "h2" : "h3";
  const now = useNow();
  return (
    <div className="events">
      {byDay(events, now).map((d) => (
        <section key={d.day} aria-label={d.day}>
          <Heading>{d.day}</Heading>
          <ol>
            {d.events.map((e) => (
              <Row key={e.tenant + e.id} event={e} showSite={showSite ?? false} />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

function Row({ event: e, showSite }: { event: TimelineEvent; showSite: boolean }) {
  const t = Date.parse(e.time);
  return (
    <li data-event={e.kind}>
      <time dateTime={e.time} title={formatAbsolute(t)}>
        {formatClock(t)}
      </time>
      <span className="event-kind">
        <SeverityMark severity={e.severity === "good" ? "" : e.severity} />
        {e.link ? <Link href={e.link}>{kindName[e.kind]}</Link> : kindName[e.kind]}
      </span>
      <span className="event-text">
        {showSite && e.site && (
          <>
            <Link href={sitePath({ tenant: e.tenant, name: e.site })}>{e.site}</Link>{" "}
          </>
        )}
        {zoned(e.text)}
        {e.by && <span className="muted"> · {e.by}</span>}
      </span>
    </li>
  );
}
