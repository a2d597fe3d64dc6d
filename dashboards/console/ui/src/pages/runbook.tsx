import { Link } from "wouter";
import { Problem } from "../api/client";
import { RunbookText, useRunbook } from "../components/runbook";
import { useTitle } from "../components/shell";
import { Empty } from "../components/states";

/** Where runbook_url of an alert that ships with Muster leads. */
export function RunbookPage({ name }: { name: string }) {
  const { error } = useRunbook(name);
  const missing = error instanceof Problem && (error.status === 404 || error.status === 400);
  useTitle(`Runbook of ${name}`);
  return (
    <div className="page stack">
      {missing ? (
        <div className="card">
          <Empty page title={`There is no runbook ${name}`}>
            <p>Those of your own rules are where their runbook_url says.</p>
            <Link href="/alerts" className="button">
              Alerts
            </Link>
          </Empty>
        </div>
      ) : (
        <>
          <div>
            <h1>{name}</h1>
            <p className="muted">
              What this alert means, and what to do first. <Link href={`/alerts?q=${encodeURIComponent(name)}`}>Where it fires now</Link>
            </p>
          </div>
          <section className="card">
            <div className="body">
              <RunbookText alert={name} />
            </div>
          </section>
        </>
      )}
    </div>
  );
}
