import { useState } from "react";
import { serverNow } from "../api/client";
import { type Change, type Outcome, useChangeSites, useSilenceSites } from "../api/inventory-queries";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { goDuration, parseDuration } from "../lib/duration";
import { formatCount, plural } from "../lib/format";
import { parseLabels } from "../lib/inventory";
import { siteKey, type SiteRef } from "../lib/site";

export type Bulk = "label" | "silence" | "maintenance" | "endMaintenance" | "approve";

const TITLES: Record<Bulk, string> = { label: "Label", silence: "Silence", maintenance: "Maintenance of", endMaintenance: "End maintenance of", approve: "Approve" };
const VERBS: Record<Bulk, [string, string]> = {
  label: ["Label", "labelled"],
  silence: ["Silence", "silenced"],
  maintenance: ["Start maintenance of", "put in maintenance"],
  endMaintenance: ["End maintenance of", "taken out of maintenance"],
  approve: ["Approve", "approved"],
};
const LENGTHS = ["1h", "4h", "1d", "7d"] as const;
const SHOWN = 100;

/** Asks before it does one thing to many sites, says how far it is, and which it failed at. */
export function BulkDialog({ what, sites, onClose, onDone }: { what: Bulk; sites: readonly SiteRef[]; onClose: () => void; onDone: (o: Outcome, text: string) => void }) {
  const [done, setDone] = useState(0);
  const change = useChangeSites(setDone);
  const silence = useSilenceSites(setDone);
  const [labels, setLabels] = useState("");
  const [reason, setReason] = useState("");
  const [length, setLength] = useState<string>(what === "maintenance" ? "4h" : "1h");
  const [tried, setTried] = useState(false);
  const [outcome, setOutcome] = useState<Outcome>();
  const busy = change.isPending || silence.isPending;
  const tenants = new Set(sites.map((s) => s.tenant)).size;
  const many = plural(sites.length, "site");

  const parsed = parseLabels(labels);
  const seconds = parseDuration(length);
  const fault =
    what === "label" ? parsed.fault : what === "silence" || what === "maintenance" ? (reason.trim() === "" ? "Say why: others see it beside the sites." : seconds === undefined || seconds <= 0 ? "Want a duration such as 90m, 2h or 3d." : "") : "";
  const submit = () => {
    setTried(true);
    if (fault) return;
    setDone(0);
    const then = {
      onSuccess: (o: Outcome) => {
        const text = `${plural(o.changed, "site")} ${VERBS[what][1]}`;
        if (o.failed.length === 0) onDone(o, `${text}.`);
        else setOutcome(o);
      },
    };
    if (what === "silence") return silence.mutate({ sites, duration: goDuration(seconds!), comment: reason.trim() }, then);
    const changes: Record<Exclude<Bulk, "silence">, () => Change> = {
      label: () => ({ labels: parsed.labels }),
      maintenance: () => ({ maintenance: { reason: reason.trim(), until: new Date(serverNow() + seconds! * 1000).toISOString().replace(/\.\d+Z$/, "Z") } }),
      endMaintenance: () => ({ endMaintenance: true }),
      approve: () => ({ approve: true }),
    };
    change.mutate({ sites, change: changes[what]() }, then);
  };
  if (outcome) return <Partial outcome={outcome} verb={VERBS[what][1]} onClose={() => onDone(outcome, `${plural(outcome.changed, "site")} ${VERBS[what][1]}, ${formatCount(outcome.failed.length)} failed.`)} />;
  const error = change.error ?? silence.error;
  return (
    <Dialog title={`${TITLES[what]} ${many}`} onClose={onClose} onSubmit={submit} busy={busy}
      actions={
        <button type="submit" className="button primary" disabled={busy}>
          {busy ? `${formatCount(done)} of ${formatCount(sites.length)}…` : `${VERBS[what][0]} ${many}`}
        </button>
      }
    >
      <p className="muted">
        {sites.length === 1 ? sites[0]!.name : `${sites.slice(0, 3).map((s) => s.name).join(", ")}${sites.length > 3 ? ` and ${formatCount(sites.length - 3)} more` : ""}`}
        {tenants > 1 ? `, of ${formatCount(tenants)} tenants` : ""}.
        {what === "approve" && " Those that wait get a certificate at their next attempt, within seconds; the others stay as they are."}
        {what === "maintenance" && " They go on being watched, but are left out of the scores of their virtual sites, and their alerts are silenced."}
        {what === "silence" && " All alerts of these sites, also those that come later; their scores stay as they are."}
      </p>
      {what === "label" && (
        <div className="field">
          <label htmlFor="bulk-labels">Labels</label>
          <input id="bulk-labels" className="input mono" autoFocus spellCheck={false} autoCapitalize="off" value={labels} aria-invalid={tried && fault !== ""} aria-describedby="bulk-fault" placeholder="tier=gold old-" onChange={(e) => setLabels(e.target.value)} />
          <p className="hint">KEY=VALUE sets a label, KEY- takes it away. Virtual sites and policies follow within two seconds.</p>
        </div>
      )}
      {(what === "silence" || what === "maintenance") && (
        <>
          <div className="field">
            <label htmlFor="bulk-reason">{what === "silence" ? "Comment" : "Reason"}</label>
            <input id="bulk-reason" className="input" autoFocus maxLength={200} value={reason} aria-invalid={tried && fault !== ""} aria-describedby="bulk-fault" placeholder="Such as: new switches, ticket 4711" onChange={(e) => setReason(e.target.value)} />
          </div>
          <div className="field">
            <label htmlFor="bulk-length">How long</label>
            <select id="bulk-length" className="select" value={length} onChange={(e) => setLength(e.target.value)}>
              {LENGTHS.map((l) => (
                <option key={l} value={l}>
                  {l.replace("h", " h").replace("d", " d")}
                </option>
              ))}
            </select>
          </div>
        </>
      )}
      <p id="bulk-fault" className="fault" role="alert">
        {tried && fault}
      </p>
      {error && <ProblemNote error={error} doing={`${VERBS[what][0].toLowerCase()} the sites`} />}
    </Dialog>
  );
}

/** What went wrong, site by site. */
function Partial({ outcome: o, verb, onClose }: { outcome: Outcome; verb: string; onClose: () => void }) {
  return (
    <Dialog title={`${plural(o.failed.length, "site")} failed`} onClose={onClose} onSubmit={onClose}
      actions={
        <button type="submit" className="button primary" autoFocus>
          Keep these selected
        </button>
      }
    >
      <p role="status">
        {plural(o.changed, "site was", "sites were")} {verb}. These were not:
      </p>
      <ul className="inv-failed">
        {o.failed.slice(0, SHOWN).map((f) => (
          <li key={siteKey(f)}>
            <b>{f.name}</b> <span className="small">{f.detail}</span>
          </li>
        ))}
        {o.failed.length > SHOWN && <li className="muted">and {formatCount(o.failed.length - SHOWN)} more</li>}
      </ul>
    </Dialog>
  );
}
