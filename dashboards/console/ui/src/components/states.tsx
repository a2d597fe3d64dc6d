import { type ReactNode, useState } from "react";
import { Problem } from "../api/client";

/** Grey bars where content will be. */
export function Skeleton({ height = 16, width = "100%", count = 1 }: { height?: number; width?: number | string; count?: number }) {
  return (
    <span role="status" style={{ display: "grid", gap: 8 }}>
      <span className="visually-hidden">Loading…</span>
      {Array.from({ length: count }, (_, i) => (
        <span key={i} aria-hidden className="skeleton" style={{ height, width }} />
      ))}
    </span>
  );
}

/** What went wrong, in the server's words, and a way out. */
export function ProblemNote({ error, doing, onRetry, slim }: { error: unknown; doing: string; onRetry?: () => void; slim?: boolean }) {
  const p = error instanceof Problem ? error : null;
  const status = p && p.status > 0 ? ` (${p.status} ${p.title})` : "";
  return (
    <div className={slim ? "note bad slim" : "note bad"} role="alert">
      <div>
        <strong>
          Could not {doing}
          {status}
        </strong>
        <p>{p ? p.detail || p.title : String(error)}</p>
        {p?.instance && <p className="small mono">{p.instance}</p>}
      </div>
      {onRetry && (
        <button type="button" className="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Nothing here, and what to do about it. page: it is all that the page says. */
export function Empty({ title, children, page }: { title: string; children?: ReactNode; page?: boolean }) {
  return (
    <div className="empty">
      {page ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

/** A button that copies a text. */
export function CopyButton({ text }: { text: string }) {
  const [state, setState] = useState<"" | "Copied" | "Select and copy">("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState("Copied");
    } catch {
      setState("Select and copy"); // no clipboard on plain HTTP
    }
    setTimeout(() => setState(""), 2500);
  };
  return (
    <button type="button" className="button" onClick={() => void copy()}>
      <span aria-live="polite">{state || "Copy"}</span>
    </button>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div className="command">
      <code tabIndex={0} aria-label="Command">
        {text}
      </code>
      <CopyButton text={text} />
    </div>
  );
}
