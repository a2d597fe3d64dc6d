import { useState } from "react";
import { useRegistrations } from "../api/queries";
import type { Registration } from "../api/types";
import { RightButton } from "../components/right-button";
import { useTitle } from "../components/shell";
import { Command, Empty, ProblemNote, Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { DASH, plural } from "../lib/format";
import { siteKey } from "../lib/site";
import { ApproveDialog } from "../dialogs/approve";
import { Facts } from "../panels/registration-facts";
import { RejectDialog } from "../dialogs/reject";

export function RegistrationsPage() {
  const { data, error, isPending, refetch } = useRegistrations();
  const [open, setOpen] = useState<{ what: "approve" | "reject"; site: Registration } | null>(null);
  const [done, setDone] = useState("");
  useTitle("Registrations");
  const close = () => setOpen(null);
  return (
    <div className="page stack">
      <div>
        <h1>Registrations</h1>
        <p className="muted">Machines that came with a token and wait until somebody lets them in. Compare the key with what the machine shows.</p>
      </div>
      <div role="status">{done && <div className="note slim">{done}</div>}</div>
      {error && <ProblemNote error={error} doing={data ? "refresh the registrations; these are older" : "load the registrations"} onRetry={() => void refetch()} />}
      {isPending && <Skeleton height={90} count={2} />}
      {data?.length === 0 && (
        <div className="card">
          <Empty title="Nothing waits for approval">
            <p>Make a token; the command that it prints joins a machine. With --auto-approve, machines that bring it need no further hand.</p>
            <Command text="muster token create" />
            <Command text="muster token create --auto-approve --max-uses 50 --expires 24h --label region=eu" />
          </Empty>
        </div>
      )}
      {data && data.length > 0 && (
        <section className="card" aria-label="Waiting">
          <header>
            <h2>{plural(data.length, "machine waits", "machines wait")}</h2>
          </header>
          <ul>
            {data.map((r) => (
              <li key={siteKey(r)} className="reg" data-registration={siteKey(r)}>
                <div style={{ minWidth: 0 }}>
                  <h3 style={{ fontSize: 15 }}>{r.name}</h3>
                  <p className="muted small">
                    Tenant {r.tenant} · came <Ago time={r.createdAt} none={DASH} />
                    {r.token && (
                      <>
                        {" "}
                        with token <code>{r.token}</code>
                      </>
                    )}
                  </p>
                </div>
                <div className="row">
                  <RightButton need="patch sites.muster.dev" tenants={[r.tenant]} className="button danger" onClick={() => setOpen({ what: "reject", site: r })}>
                    Reject<span className="visually-hidden"> {r.name}</span>
                  </RightButton>
                  <RightButton need="patch sites.muster.dev" tenants={[r.tenant]} className="button primary" onClick={() => setOpen({ what: "approve", site: r })}>
                    Approve<span className="visually-hidden"> {r.name}</span>
                  </RightButton>
                </div>
                <Facts of={r} />
              </li>
            ))}
          </ul>
        </section>
      )}
      {open?.what === "approve" && (
        <ApproveDialog
          site={open.site}
          onClose={close}
          onDone={() => {
            setDone(`${open.site.name} is approved; it joins the fleet as soon as it has fetched its certificate.`);
            close();
          }}
        />
      )}
      {open?.what === "reject" && (
        <RejectDialog
          site={open.site}
          onClose={close}
          onDone={() => {
            setDone(`${open.site.name} is rejected.`);
            close();
          }}
        />
      )}
    </div>
  );
}
