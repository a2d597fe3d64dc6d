import type { WorkloadCounts, WorkloadState } from "../api/types";
import { formatCount } from "../lib/format";
import { countOf, countsText, stateMeaning, stateName, STATES } from "../lib/workloads";

function Outline({ state }: { state: WorkloadState }) {
  switch (state) {
    case "Ready":
      return <circle cx="8" cy="8" r="5.6" fill="var(--green)" />;
    case "Progressing":
      return (
        <>
          <circle cx="8" cy="8" r="5" fill="none" stroke="var(--accent)" strokeWidth="2" />
          <path d="M8 3a5 5 0 0 1 0 10Z" fill="var(--accent)" />
        </>
      );
    case "Waiting":
      return <circle cx="8" cy="8" r="4.9" fill="var(--surface)" stroke="var(--grey)" strokeWidth="2.2" strokeDasharray="3 2" />;
    case "RolledBack":
      return <path d="M8 1.9 14.7 13.7 1.3 13.7Z" fill="var(--orange)" stroke="var(--orange)" strokeWidth="1" strokeLinejoin="round" />;
    default:
      return <rect x="2" y="2" width="12" height="12" rx="1.2" fill="var(--red)" />;
  }
}

/** A state as a shape, beside the word that says the same. */
export function StateMark({ state, size = 12 }: { state: WorkloadState; size?: number }) {
  return (
    <svg className="shape" width={size} height={size} viewBox="0 0 16 16" aria-hidden>
      <Outline state={state} />
    </svg>
  );
}

export function State({ state }: { state: WorkloadState }) {
  return (
    <span className="severity" title={stateMeaning[state]}>
      <StateMark state={state} />
      {stateName[state]}
    </span>
  );
}

/** How many sites are in each state, as one bar; offline ones are told beside it. */
export function StateBar({ counts, height = 10 }: { counts: WorkloadCounts; height?: number }) {
  return (
    <div className="stacked" role="img" aria-label={countsText(counts)} title={countsText(counts)} style={{ height }}>
      {STATES.map((s) => countOf(counts, s) > 0 && <span key={s} className={`is-${s}`} style={{ flexGrow: countOf(counts, s) }} />)}
    </div>
  );
}

/** The counts in figures, each with its shape; those that are zero are left out but for ready. */
export function StateCounts({ counts }: { counts: WorkloadCounts }) {
  return (
    <span className="counts wrap" aria-hidden>
      {STATES.map((s) =>
        s !== "Ready" && countOf(counts, s) === 0 ? null : (
          <span key={s} className={countOf(counts, s) === 0 ? "zero" : undefined} title={stateName[s]}>
            <StateMark state={s} size={10} />
            {formatCount(countOf(counts, s))}
          </span>
        ),
      )}
      {counts.offline > 0 && <span className="muted">{formatCount(counts.offline)} offline</span>}
    </span>
  );
}
