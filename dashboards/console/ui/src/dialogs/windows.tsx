import { useId, useMemo, useState } from "react";
import { Problem, serverNow } from "../api/client";
import type { MaintenanceWindow } from "../api/types";
import { useDropWindow, usePlanWindow, type WindowOwner } from "../api/window-queries";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { goDuration, parseDuration } from "../lib/duration";
import { fromTyped, toTyped, TYPED_TIME } from "../lib/time-span";
import { parseTime } from "../lib/time";
import { zoneName } from "../lib/zone";
import { checkSchedule, checkWindowDuration, WINDOW_NAME, windowName } from "../lib/windows";

export function DropDialog({ owner, window: w, onClose }: { owner: WindowOwner; window: MaintenanceWindow; onClose: () => void }) {
  const drop = useDropWindow(owner);
  return (
    <Dialog title={`Remove the window ${w.name}?`} onClose={onClose} busy={drop.isPending} onSubmit={() => drop.mutate(w.name, { onSuccess: onClose })}
      actions={
        <button type="submit" className="button danger" disabled={drop.isPending}>
          {drop.isPending ? "Removing…" : "Remove"}
        </button>
      }
    >
      <p>{w.reason}</p>
      <p className="muted">If it is open now, its maintenance ends and the alerts tell people again.</p>
      {drop.error && <ProblemNote error={drop.error} doing="remove the window" />}
    </Dialog>
  );
}

const ZONES: readonly string[] = (() => {
  const all = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
  return all.includes("UTC") ? all : ["UTC", ...all];
})();

const SCHEDULES: [string, string][] = [
  ["0 2 * * *", "every day at 02:00"],
  ["0 2 * * SUN", "every Sunday at 02:00"],
  ["0 2 1 * *", "on the first of each month at 02:00"],
];

export function PlanDialog({ owner, windows, onClose }: { owner: WindowOwner; windows: readonly MaintenanceWindow[]; onClose: () => void }) {
  const id = useId();
  const plan = usePlanWindow(owner);
  const [kind, setKind] = useState<"once" | "recurring">("once");
  const [reason, setReason] = useState("");
  const [typedName, setName] = useState<string | null>(null);
  const [start, setStart] = useState(() => toTyped(Math.ceil(serverNow() / 3600_000) * 3600_000).slice(0, 16));
  const [schedule, setSchedule] = useState("0 2 * * SUN");
  const [zone, setZone] = useState(zoneName);
  const [duration, setDuration] = useState("2h");
  const [tried, setTried] = useState(false);
  const taken = useMemo(() => windows.map((w) => w.name), [windows]);
  const name = typedName ?? windowName(reason, taken);
  const seconds = parseDuration(duration);
  const startAt = parseTime(fromTyped(start));
  const faults: Record<string, string> = {
    reason: reason.trim() ? "" : "Say why: it is shown beside the sites.",
    name: name.length > 63 || !WINDOW_NAME.test(name) ? "want lower-case letters, digits and -, at most 63" : "",
    duration: checkWindowDuration(duration),
    start: kind !== "once" ? "" : startAt === undefined ? "want a time such as 2026-11-25 20:00" : startAt + (seconds ?? 0) * 1000 <= serverNow() ? "it would be over already" : "",
    schedule: kind === "once" ? "" : checkSchedule(schedule),
    timeZone: kind === "once" || ZONES.length <= 1 || ZONES.includes(zone.trim()) || zoneKnown(zone.trim()) ? "" : "want a name such as Europe/Berlin",
  };
  const said = (f: string) => (tried && faults[f]) || (plan.error instanceof Problem ? plan.error.fieldFault(f) : "");
  const submit = () => {
    setTried(true);
    if (Object.values(faults).some(Boolean) || seconds === undefined) return;
    const when = kind === "once" ? { start: fromTyped(start) } : { schedule: schedule.trim(), timeZone: zone.trim() };
    plan.mutate({ name, request: { reason: reason.trim(), ...when, duration: goDuration(seconds) } }, { onSuccess: onClose });
  };
  const field = (key: string, label: string, input: (p: { id: string; "aria-invalid": boolean; "aria-describedby": string }) => React.ReactNode, hint = "") => (
    <div className="field">
      <label htmlFor={`${id}-${key}`}>{label}</label>
      {input({ id: `${id}-${key}`, "aria-invalid": said(key) !== "", "aria-describedby": `${id}-${key}-hint` })}
      <p id={`${id}-${key}-hint`} className={said(key) ? "fault" : "hint"}>
        {said(key) || hint}
      </p>
    </div>
  );
  const shown = ["reason", "name", "window", "duration", "start", "schedule", "timeZone"].some((f) => plan.error instanceof Problem && plan.error.fieldFault(f));
  return (
    <Dialog title={`Plan maintenance of ${"site" in owner ? owner.site.name : `all members of ${owner.virtualSite.namespace}/${owner.virtualSite.name}`}`} onClose={onClose} onSubmit={submit} busy={plan.isPending}
      actions={
        <button type="submit" className="button primary" disabled={plan.isPending}>
          {plan.isPending ? "Planning…" : "Plan"}
        </button>
      }
    >
      {field("reason", "Reason", (p) => <input {...p} className="input" maxLength={200} autoFocus value={reason} placeholder="Such as: monthly updates" onChange={(e) => setReason(e.target.value)} />)}
      <div className="segmented" role="group" aria-label="How often" style={{ justifySelf: "start" }}>
        <button type="button" aria-pressed={kind === "once"} onClick={() => setKind("once")}>
          Once
        </button>
        <button type="button" aria-pressed={kind === "recurring"} onClick={() => setKind("recurring")}>
          Recurring
        </button>
      </div>
      <div className="cols2">
        {kind === "once"
          ? field("start", "Start", (p) => <input {...p} className="input" {...TYPED_TIME} value={start} onChange={(e) => setStart(e.target.value)} />, `in ${zoneName()}`)
          : field("schedule", "Schedule", (p) => <input {...p} className="input mono" value={schedule} spellCheck={false} onChange={(e) => setSchedule(e.target.value)} />, SCHEDULES.find(([c]) => c === schedule.trim())?.[1] ?? "cron: minute, hour, day, month, weekday")}
        {field("duration", "Duration", (p) => <input {...p} className="input" value={duration} spellCheck={false} onChange={(e) => setDuration(e.target.value)} />, "such as 90m or 2h")}
      </div>
      {kind === "recurring" && (
        <>
          <div className="row wrap">
            {SCHEDULES.map(([c, text]) => (
              <button key={c} type="button" className="button" aria-pressed={c === schedule} onClick={() => setSchedule(c)}>
                {text}
              </button>
            ))}
          </div>
          {field(
            "timeZone",
            "Time zone",
            (p) => (
              <>
                <input {...p} className="input" list={`${id}-zones`} value={zone} spellCheck={false} onChange={(e) => setZone(e.target.value)} />
                <datalist id={`${id}-zones`}>
                  {ZONES.map((z) => (
                    <option key={z} value={z} />
                  ))}
                </datalist>
              </>
            ),
            "the schedule's hours are this zone's, summer time included",
          )}
        </>
      )}
      {field("name", "Name", (p) => <input {...p} className="input mono" maxLength={63} value={name} spellCheck={false} onChange={(e) => setName(e.target.value)} />, taken.includes(name) ? "this replaces the window of the same name" : "names the window in the object and in kubectl")}
      {plan.error && !shown && <ProblemNote error={plan.error} doing="plan the maintenance" />}
    </Dialog>
  );
}

function zoneKnown(zone: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return zone !== "";
  } catch {
    return false;
  }
}
