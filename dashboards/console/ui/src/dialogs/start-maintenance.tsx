import { useState } from "react";
import { serverNow } from "../api/client";
import { useMaintenance } from "../api/queries";
import type { SiteDetail } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { formatAbsolute } from "../lib/time";

const LENGTHS = [
  { id: "1h", label: "1 hour", ms: 3600_000 },
  { id: "4h", label: "4 hours", ms: 4 * 3600_000 },
  { id: "24h", label: "24 hours", ms: 24 * 3600_000 },
  { id: "7d", label: "7 days", ms: 7 * 24 * 3600_000 },
  { id: "open", label: "until ended by hand", ms: 0 },
] as const;

export function StartDialog({ site, change, onClose }: { site: SiteDetail; change: ReturnType<typeof useMaintenance>; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const [length, setLength] = useState<(typeof LENGTHS)[number]["id"]>("1h");
  const [fault, setFault] = useState("");
  const ms = LENGTHS.find((l) => l.id === length)?.ms ?? 0;
  const until = ms > 0 ? serverNow() + ms : undefined;
  const submit = () => {
    const text = reason.trim();
    if (!text) return setFault("Say why: it is shown beside the site.");
    const end = ms > 0 ? new Date(serverNow() + ms).toISOString().replace(/\.\d+Z$/, "Z") : undefined;
    change.mutate({ reason: text, ...(end ? { until: end } : {}) }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Maintenance of ${site.name}`} onClose={onClose} onSubmit={submit} busy={change.isPending}
      actions={
        <button type="submit" className="button primary" disabled={change.isPending}>
          {change.isPending ? "Starting…" : "Start maintenance"}
        </button>
      }
    >
      <p className="muted">The site goes on being watched, but is left out of the scores of its virtual sites.</p>
      <div className="field">
        <label htmlFor="reason">Reason</label>
        <input id="reason" className="input" maxLength={200} autoFocus value={reason} aria-invalid={fault !== ""} aria-describedby="reason-fault"
          placeholder="Such as: new switch, ticket 4711" onChange={(e) => setReason(e.target.value)} />
        <p id="reason-fault" className="fault" role="alert">
          {fault}
        </p>
      </div>
      <div className="field">
        <label htmlFor="length">How long</label>
        <select id="length" className="select" value={length} onChange={(e) => setLength(e.target.value as typeof length)}>
          {LENGTHS.map((l) => (
            <option key={l.id} value={l.id}>
              {l.label}
            </option>
          ))}
        </select>
        <p className="hint">{until ? `Ends by itself: ${formatAbsolute(until)}` : "It goes on until somebody ends it."}</p>
      </div>
      {change.error && <ProblemNote error={change.error} doing="start the maintenance" />}
    </Dialog>
  );
}
