import { type Level, levelOf } from "../lib/severity";

/** The outline of each level's shape in a box of 16 × 16: told apart without colours. */
function Outline({ level }: { level: Level | undefined }) {
  switch (level) {
    case "critical":
      return <rect x="2" y="2" width="12" height="12" rx="1.2" fill="var(--red)" />;
    case "error":
      return <path d="M8 1.2 14.8 8 8 14.8 1.2 8Z" fill="var(--red)" />;
    case "warning":
      return <path d="M8 1.9 14.7 13.7 1.3 13.7Z" fill="var(--orange)" stroke="var(--orange)" strokeWidth="1" strokeLinejoin="round" />;
    case "info":
      return <circle cx="8" cy="8" r="5" fill="none" stroke="var(--accent)" strokeWidth="2.2" />;
    default:
      return <circle cx="8" cy="8" r="2.6" fill="var(--grey)" />;
  }
}

/** A severity as a shape, beside the word that says the same. */
export function SeverityMark({ severity, size = 12 }: { severity: string; size?: number }) {
  return (
    <svg className="shape" width={size} height={size} viewBox="0 0 16 16" aria-hidden>
      <Outline level={levelOf(severity)} />
    </svg>
  );
}

/** A severity as a shape and a word. */
export function Severity({ severity }: { severity: string }) {
  return (
    <span className="severity" data-severity={severity}>
      <SeverityMark severity={severity} />
      {severity || "none"}
    </span>
  );
}
