import type { GateVerdict, RolloutCounts, RolloutPhase, RolloutStep } from "../api/types";
import { formatCount } from "../lib/format";
import { atStep, phaseName, stepMeaning, stepName, STEPS, stepsText } from "../lib/rollouts";

/** A step's square, as in the picture of the waves; beside a word that says the same. */
export function StepMark({ step }: { step: RolloutStep }) {
  return <i aria-hidden className={`cell is-${step}`} />;
}

export function Step({ step }: { step: RolloutStep }) {
  return (
    <span className="severity" title={stepMeaning[step]}>
      <StepMark step={step} />
      {stepName[step]}
    </span>
  );
}

/** How many sites are at each step, as one bar. */
export function StepBar({ counts, height = 10 }: { counts: RolloutCounts; height?: number }) {
  const text = stepsText(counts);
  return (
    <div className="stacked steps" role="img" aria-label={text} title={text} style={{ height }}>
      {STEPS.map((s) => atStep(counts, s) > 0 && <span key={s} className={`is-${s}`} style={{ flexGrow: atStep(counts, s) }} />)}
    </div>
  );
}

export function StepCounts({ counts }: { counts: RolloutCounts }) {
  return (
    <span className="counts" aria-hidden>
      {STEPS.map((s) => atStep(counts, s) > 0 && (
        <span key={s} title={`${stepName[s]}: ${stepMeaning[s]}`}>
          <StepMark step={s} />
          {formatCount(atStep(counts, s))}
        </span>
      ))}
    </span>
  );
}

function PhaseShape({ phase }: { phase: RolloutPhase }) {
  switch (phase) {
    case "Completed":
      return <circle cx="8" cy="8" r="5.6" fill="var(--green)" />;
    case "Progressing":
      return (
        <>
          <circle cx="8" cy="8" r="5" fill="none" stroke="var(--accent)" strokeWidth="2" />
          <path d="M8 3a5 5 0 0 1 0 10Z" fill="var(--accent)" />
        </>
      );
    case "Paused":
      return <path d="M3 2h4v12H3zM9 2h4v12H9z" fill="var(--orange)" />;
    case "RollingBack":
      return <path d="M8 1.9 14.7 13.7 1.3 13.7Z" fill="var(--surface)" stroke="var(--orange)" strokeWidth="2" strokeLinejoin="round" />;
    case "RolledBack":
      return <path d="M8 1.9 14.7 13.7 1.3 13.7Z" fill="var(--orange)" stroke="var(--orange)" strokeWidth="1" strokeLinejoin="round" />;
    case "Invalid":
      return <rect x="2" y="2" width="12" height="12" rx="1.2" fill="var(--red)" />;
    default:
      return <circle cx="8" cy="8" r="4.9" fill="var(--surface)" stroke="var(--grey)" strokeWidth="2.2" strokeDasharray="3 2" />;
  }
}

export function Phase({ phase, size = 12 }: { phase: RolloutPhase; size?: number }) {
  return (
    <span className="severity" data-phase={phase}>
      <svg className="shape" width={size} height={size} viewBox="0 0 16 16" aria-hidden>
        <PhaseShape phase={phase} />
      </svg>
      {phaseName[phase]}
    </span>
  );
}

const VERDICT: Record<GateVerdict, { text: string; title: string }> = {
  Pass: { text: "Holds", title: "this gate lets the wave go on" },
  Wait: { text: "Waits", title: "it lacks time or sites" },
  Unknown: { text: "Unknown", title: "it lacks data; what is unknown never passes" },
  Fail: { text: "Fails", title: "this gate stops the rollout" },
};

function VerdictShape({ verdict }: { verdict: GateVerdict }) {
  switch (verdict) {
    case "Pass":
      return <circle cx="8" cy="8" r="5.6" fill="var(--green)" />;
    case "Fail":
      return <rect x="2" y="2" width="12" height="12" rx="1.2" fill="var(--red)" />;
    case "Wait":
      return (
        <>
          <circle cx="8" cy="8" r="5" fill="none" stroke="var(--accent)" strokeWidth="2" />
          <path d="M8 3a5 5 0 0 1 0 10Z" fill="var(--accent)" />
        </>
      );
    default:
      return <circle cx="8" cy="8" r="4.9" fill="var(--surface)" stroke="var(--grey)" strokeWidth="2.2" />;
  }
}

export function Verdict({ verdict }: { verdict: GateVerdict }) {
  return (
    <span className="severity" title={VERDICT[verdict].title} data-verdict={verdict}>
      <svg className="shape" width="12" height="12" viewBox="0 0 16 16" aria-hidden>
        <VerdictShape verdict={verdict} />
      </svg>
      {VERDICT[verdict].text}
    </span>
  );
}
