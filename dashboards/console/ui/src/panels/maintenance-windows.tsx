import { useState } from "react";
import type { MaintenanceWindow } from "../api/types";
import { type WindowOwner } from "../api/window-queries";
import { ProblemNote, Skeleton } from "../components/states";
import { Ago, useNow } from "../components/time";
import { parseDuration, wordsOfDuration } from "../lib/duration";
import { formatAbsolute, parseTime } from "../lib/time";
import { sortWindows, windowState } from "../lib/windows";
import { DropDialog, PlanDialog } from "../dialogs/windows";

interface Props {
  owner: WindowOwner;
  /** undefined while they are read. */
  windows: readonly MaintenanceWindow[] | undefined;
  error?: unknown;
  onRetry?: () => void;
}

/** Planned work of a site, or of all members of a virtual site. */
export function MaintenanceWindows({ owner, windows, error, onRetry }: Props) {
  const now = useNow();
  const [adding, setAdding] = useState(false);
  const [dropping, setDropping] = useState<MaintenanceWindow | null>(null);
  return (
    <section className="card" aria-label="Planned maintenance">
      <header>
        <h2>Planned maintenance</h2>
        <button type="button" className="button" onClick={() => setAdding(true)} disabled={!windows}>
          Plan…
        </button>
      </header>
      {!windows && !error && (
        <div className="body">
          <Skeleton count={2} />
        </div>
      )}
      {!!error && (
        <div className="body">
          <ProblemNote slim error={error} doing="read the planned maintenance" {...(onRetry ? { onRetry } : {})} />
        </div>
      )}
      {windows?.length === 0 && <p className="body muted">None is planned. A window puts {"site" in owner ? "the site" : "all members"} into maintenance while it is open, and silences the alerts.</p>}
      {windows && windows.length > 0 && (
        <ul>
          {sortWindows(windows, now).map((w) => (
            <li key={w.name} className="window" data-window={w.name}>
              <div>
                <strong>{w.reason}</strong> <When window={w} now={now} />
                <div className="muted small">
                  <code>{w.name}</code>
                </div>
              </div>
              <button type="button" className="button quiet" onClick={() => setDropping(w)}>
                Remove<span className="visually-hidden"> {w.name}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      {adding && windows && <PlanDialog owner={owner} windows={windows} onClose={() => setAdding(false)} />}
      {dropping && <DropDialog owner={owner} window={dropping} onClose={() => setDropping(null)} />}
    </section>
  );
}

function When({ window: w, now }: { window: MaintenanceWindow; now: number }) {
  const state = windowState(w, now);
  const long = parseDuration(w.duration);
  const start = parseTime(w.start);
  return (
    <>
      {state === "open" && <span className="chip warn">open now</span>}
      {state === "over" && <span className="chip">over</span>}
      {state === "recurring" && <span className="chip">recurring</span>}
      <div className="small">
        {state === "recurring" ? (
          <>
            <code>{w.schedule}</code> {w.timeZone || "UTC"}
          </>
        ) : (
          start !== undefined && (
            <>
              {formatAbsolute(start)} ({<Ago time={start} />})
            </>
          )
        )}
        , for {long === undefined ? w.duration : wordsOfDuration(long)}
      </div>
    </>
  );
}
