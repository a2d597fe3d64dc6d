import { useState } from "react";
import { serverNow } from "../api/client";
import type { useReset } from "../api/queries";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import type { SiteRef } from "../lib/site";
import { formatAbsolute } from "../lib/time";

const WAITS = [
  { id: "1h", label: "1 hour", ms: 3600_000 },
  { id: "24h", label: "24 hours", ms: 24 * 3600_000 },
  { id: "168h", label: "7 days", ms: 7 * 24 * 3600_000 },
  { id: "720h", label: "30 days", ms: 30 * 24 * 3600_000 },
] as const;

/** Asks twice: the site's name is typed, as what follows can't be undone. */
export function ResetDialog({ site, change, onClose }: { site: SiteRef; change: ReturnType<typeof useReset>; onClose: () => void }) {
  const [wait, setWait] = useState<(typeof WAITS)[number]["id"]>("1h");
  const [discardSpool, setDiscard] = useState(false);
  const [approveAgain, setApprove] = useState(false);
  const [typed, setTyped] = useState("");
  const [fault, setFault] = useState("");
  const submit = () => {
    if (typed.trim() !== site.name) return setFault(`Type ${site.name}: no other site is meant.`);
    change.mutate({ wait, discardSpool, approveAgain }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Reset ${site.name}?`} onClose={onClose} onSubmit={submit} busy={change.isPending}
      actions={
        <button type="submit" className="button danger" disabled={change.isPending}>
          {change.isPending ? "Asking…" : "Reset the site"}
        </button>
      }
    >
      <p>
        What the fleet gave the machine is taken off it: workloads, the host’s configuration, its key and its certificate. It comes back as the same site, with a new key, its labels and its history.
      </p>
      <p className="muted">Once it has begun there is no way back. The site’s own operator must have switched resets on.</p>
      <div className="field">
        <label htmlFor="reset-wait">Wait for the site</label>
        <select id="reset-wait" className="select" value={wait} onChange={(e) => setWait(e.target.value as typeof wait)}>
          {WAITS.map((w) => (
            <option key={w.id} value={w.id}>
              {w.label}
            </option>
          ))}
        </select>
        <p className="hint">A site that is not connected until {formatAbsolute(serverNow() + WAITS.find((w) => w.id === wait)!.ms)} stays as it is.</p>
      </div>
      <label className="row nowrap">
        <input type="checkbox" checked={discardSpool} onChange={(e) => setDiscard(e.target.checked)} /> Drop samples that it has not sent yet
      </label>
      <label className="row nowrap">
        <input type="checkbox" checked={approveAgain} onChange={(e) => setApprove(e.target.checked)} /> Have it wait for approval when it is back
      </label>
      <div className="field">
        <label htmlFor="reset-name">Name of the site</label>
        <input id="reset-name" className="input" autoComplete="off" spellCheck={false} autoFocus value={typed} aria-invalid={fault !== ""} aria-describedby="reset-fault" placeholder={site.name}
          onChange={(e) => {
            setTyped(e.target.value);
            setFault("");
          }}
        />
        <p id="reset-fault" className="fault" role="alert">
          {fault}
        </p>
      </div>
      {change.error && <ProblemNote error={change.error} doing="ask for the reset" />}
    </Dialog>
  );
}
