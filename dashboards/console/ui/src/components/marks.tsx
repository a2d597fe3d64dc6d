import { useCallback, useState } from "react";
import type { TimelineEvent, TimelineKind } from "../api/types";
import { MARKABLE, MARKED } from "../lib/marks";
import { kindName } from "../lib/timeline";
import { EventList } from "./event-list";
import { ProblemNote } from "./states";

const SHOWN = 30;

/** The kinds of events that a chart is marked with, and how to change them. */
export function useKinds(): [readonly TimelineKind[], (k: TimelineKind) => void] {
  const [kinds, setKinds] = useState<readonly TimelineKind[]>(MARKED);
  return [kinds, useCallback((k: TimelineKind) => setKinds((old) => MARKABLE.filter((m) => (m === k) !== old.includes(m))), [])];
}

export function MarkPicker({ kinds, onToggle }: { kinds: readonly TimelineKind[]; onToggle: (k: TimelineKind) => void }) {
  return (
    <div className="row wrap small" role="group" aria-label="Marks in the chart">
      {MARKABLE.map((k) => (
        <button key={k} type="button" className="chip toggle" aria-pressed={kinds.includes(k)} onClick={() => onToggle(k)}>
          {kindName[k]}
        </button>
      ))}
    </div>
  );
}

/** The events that a chart is marked with, in words. */
export function MarkedEvents({ events, error, more, showSite }: { events: readonly TimelineEvent[]; error: unknown; more: boolean; showSite?: boolean }) {
  const [all, setAll] = useState(false);
  return (
    <section className="card" aria-label="What happened in this time">
      <header>
        <h2>What happened in this time</h2>
      </header>
      <div className="body stack">
        {error !== null && error !== undefined && <ProblemNote slim error={error} doing="read the timeline; the chart has no marks" />}
        {events.length === 0 && !error && <p className="muted">Nothing of these kinds.</p>}
        {events.length > 0 && <EventList events={all ? events : events.slice(0, SHOWN)} showSite={showSite ?? false} />}
        {events.length > SHOWN && !all && (
          <button type="button" className="button" onClick={() => setAll(true)}>
            Show all {events.length}
          </button>
        )}
        {more && <p className="muted small">There is more than fits; a shorter time shows all of it.</p>}
      </div>
    </section>
  );
}
