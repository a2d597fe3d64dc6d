import { useState } from "react";
import { useReset } from "../api/queries";
import type { SiteObject, SiteReset } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { Ago } from "../components/time";
import { ResetDialog } from "../dialogs/reset-site";
import { OVERDUE, phaseText, STEPS, underWay } from "../lib/reset";

/** A factory reset that goes on, at the head of a site's page. */
export function ResetNote({ reset: r }: { reset: SiteReset | null | undefined }) {
  if (!r || !underWay(r)) return null;
  return (
    <div className={`note slim${r.overdue ? " bad" : ""}`}>
      <strong>{r.overdue ? "Not back from its factory reset" : "Factory reset"}</strong>
      <span>{r.overdue ? OVERDUE : phaseText[r.phase]}</span>
    </div>
  );
}

/** How far a site's factory reset is; asks for one, and takes it back. */
export function SiteResetCard({ object: o }: { object: SiteObject | undefined }) {
  const [dialog, setDialog] = useState<"" | "ask" | "cancel">("");
  const change = useReset({ tenant: o?.tenant ?? "", name: o?.name ?? "" });
  if (!o || !o.approved || o.decommissioned) return null;
  const r = o.reset;
  const busy = r !== null && underWay(r);
  const close = () => {
    setDialog("");
    change.reset();
  };
  return (
    <section className="card" aria-label="Factory reset">
      <header>
        <h2>Factory reset</h2>
        {r?.expires && (
          <button type="button" className="button" onClick={() => setDialog("cancel")}>
            Take it back…
          </button>
        )}
        {!busy && (
          <button type="button" className="button" onClick={() => setDialog("ask")}>
            Reset…
          </button>
        )}
      </header>
      <div className="body stack" style={{ gap: 8 }}>
        {r ? <Progress reset={r} /> : <p className="muted">For a machine that is handed on, or that nobody trusts any more: it comes back as the same site, with a new key.</p>}
      </div>
      {dialog === "ask" && <ResetDialog site={o} change={change} onClose={close} />}
      {dialog === "cancel" && (
        <Dialog title={`Take back the reset of ${o.name}?`} onClose={close} busy={change.isPending} onSubmit={() => change.mutate(null, { onSuccess: close })}
          actions={
            <button type="submit" className="button primary" disabled={change.isPending}>
              {change.isPending ? "Taking it back…" : "Take it back"}
            </button>
          }
        >
          <p>A site that has begun meanwhile goes on.</p>
          {change.error && <ProblemNote error={change.error} doing="take the reset back" />}
        </Dialog>
      )}
    </section>
  );
}

function Progress({ reset: r }: { reset: SiteReset }) {
  const at = STEPS.findIndex((s) => s === r.phase);
  return (
    <>
      {at >= 0 && (
        <ol className="reset-steps" aria-label="Steps">
          {STEPS.map((s, i) => (
            <li key={s} data-step={i < at || r.phase === "Completed" ? "done" : i === at ? "now" : "later"} aria-current={i === at ? "step" : undefined}>
              {s}
            </li>
          ))}
        </ol>
      )}
      <p>
        {at < 0 && <span className="chip warn">{r.phase}</span>} {phaseText[r.phase]}{" "}
        {r.since && (
          <span className="muted">
            <Ago time={r.since} />
          </span>
        )}
      </p>
      {r.expires && (
        <p className="muted small">
          The request waits for the site; it ends <Ago time={r.expires} />.
        </p>
      )}
      {r.message && <p className="small">{r.message}</p>}
      {r.overdue && <p className="fault">{OVERDUE}</p>}
    </>
  );
}
