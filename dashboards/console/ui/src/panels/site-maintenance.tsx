import { useState } from "react";
import { useMaintenance } from "../api/queries";
import type { Maintenance, SiteDetail } from "../api/types";
import { Dialog } from "../components/dialog";
import { RightButton } from "../components/right-button";
import { ProblemNote } from "../components/states";
import { Ago } from "../components/time";
import { parseTime } from "../lib/time";
import { StartDialog } from "../dialogs/start-maintenance";

/** Planned work: says that it goes on, and starts or ends it. */
export function MaintenanceBar({ site, maintenance: m }: { site: SiteDetail; maintenance: Maintenance | null }) {
  const [dialog, setDialog] = useState<"" | "start" | "end">("");
  const change = useMaintenance(site);
  const close = () => {
    setDialog("");
    change.reset();
  };
  return (
    <>
      {m ? (
        <div className="note slim">
          <strong>In maintenance</strong>
          <span>{m.reason}</span>
          <span className="muted">
            {parseTime(m.until) === undefined ? (
              "until it is ended by hand"
            ) : (
              <>
                ends <Ago time={m.until} />
              </>
            )}
            ; left out of its virtual sites' scores
          </span>
          <span style={{ marginLeft: "auto" }}>
            <RightButton need="patch sites.muster.dev" tenants={[site.tenant]} onClick={() => setDialog("end")}>
              End maintenance
            </RightButton>
          </span>
        </div>
      ) : (
        <div className="row">
          <RightButton need="patch sites.muster.dev" tenants={[site.tenant]} onClick={() => setDialog("start")}>
            Start maintenance…
          </RightButton>
        </div>
      )}
      {dialog === "start" && <StartDialog site={site} change={change} onClose={close} />}
      {dialog === "end" && (
        <Dialog title={`End the maintenance of ${site.name}?`} onClose={close} busy={change.isPending}
          onSubmit={() => change.mutate(null, { onSuccess: close })}
          actions={
            <button type="submit" className="button primary" disabled={change.isPending}>
              {change.isPending ? "Ending…" : "End maintenance"}
            </button>
          }
        >
          <p>The site counts in its virtual sites again from the next evaluation on.</p>
          {change.error && <ProblemNote error={change.error} doing="end the maintenance" />}
        </Dialog>
      )}
    </>
  );
}
