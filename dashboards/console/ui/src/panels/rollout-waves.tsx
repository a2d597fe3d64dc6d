import { useMemo } from "react";
import { useLocation } from "wouter";
import type { RolloutDetail, RolloutSite, RolloutWave } from "../api/types";
import { StepMark } from "../components/rollout-bits";
import { Skeleton } from "../components/states";
import { Ago } from "../components/time";
import { formatCount, plural } from "../lib/format";
import { atStep, byWave, type Cell, cellsOf, stepMeaning, stepName, STEPS, stepsText } from "../lib/rollouts";
import { sitePath } from "../lib/site";
import { formatDuration } from "../lib/time";

interface Props {
  rollout: RolloutDetail;
  sites: readonly RolloutSite[] | undefined;
  /** Shows the sites of a wave, or at a step. */
  onShow: (filter: { wave?: string; step?: string }) => void;
}

/** The waves as a picture: a row a wave, a square a site. */
export function RolloutWaves({ rollout: r, sites, onShow }: Props) {
  const waves = useMemo(() => byWave(sites ?? []), [sites]);
  const size = Math.max(0, ...r.waves.map((w) => perCell(waves.get(w.number)?.length ?? w.sites.total)));
  return (
    <section className="card" aria-label="Waves">
      <header>
        <h2>Waves</h2>
        <span className="muted small">{size > 1 ? "each square is several sites, and shows the one to know of first" : "each square is a site"}
          {r.waves.length < r.waveCount && ` · ${r.waves.length} of ${r.waveCount} waves, around the current one`}
        </span>
      </header>
      {r.waves.length === 0 ? (
        <p className="body muted">They are planned once it begins.</p>
      ) : (
        <ol className="waves">
          {r.waves.map((w) => (
            <Wave key={w.number} wave={w} n={w.number} current={r.wave === w.number && !r.endedAt} sites={waves.get(w.number)} rollout={r} loading={sites === undefined} onShow={onShow} />
          ))}
        </ol>
      )}
      <ul className="step-legend body" aria-label="Steps">
        {STEPS.filter((s) => s === "passed" || s === "waiting" || atStep(r.sites, s) > 0).map((s) => (
          <li key={s}>
            <button type="button" className="linkish plain" title={stepMeaning[s]} onClick={() => onShow({ step: s, wave: "" })}>
              <StepMark step={s} />
              {stepName[s]} <b>{formatCount(atStep(r.sites, s))}</b>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

const perCell = (n: number) => (n > 0 ? (cellsOf(Array.from({ length: n }, () => ({ site: "", wave: 0, step: "waiting" as const, has: 0 })))[0]?.sites.length ?? 1) : 1);

function Wave({ wave, n, current, sites, rollout, loading, onShow }: { wave: RolloutWave; n: number; current: boolean; sites: RolloutSite[] | undefined; rollout: RolloutDetail; loading: boolean; onShow: Props["onShow"] }) {
  const [, navigate] = useLocation();
  const cells = useMemo(() => cellsOf(sites ?? []), [sites]);
  const several = (cells[0]?.sites.length ?? 1) > 1;
  const open = (e: React.MouseEvent) => {
    const i = (e.target as HTMLElement).dataset.i;
    const cell = i === undefined ? undefined : cells[Number(i)];
    if (!cell) return;
    if (cell.sites.length === 1) navigate(sitePath({ tenant: rollout.tenant, name: cell.sites[0]! }));
    else onShow({ wave: String(n), step: cell.step });
  };
  return (
    <li className={current ? "wave current" : "wave"} data-wave={n} {...(current ? { "aria-current": "step" as const } : {})}>
      <div className="wave-head">
        <button type="button" className="linkish" title="Show its sites" onClick={() => onShow({ wave: String(n), step: "" })}>
          {n}. {wave.name}
        </button>
        <span className="muted small">{plural(wave.sites.total, "site")}</span>
        <WaveState wave={wave} current={current} rollout={rollout} />
      </div>
      {loading ? (
        <Skeleton height={14} />
      ) : (
        // What the picture says stands in its label, and the sites in the table below; the squares are a short cut for pointers.
        <div className={several ? "cells several" : "cells"} role="img" aria-label={`Wave ${n}: ${stepsText(wave.sites)}`} onClick={open}>
          {cells.map((c, i) => (
            <i key={i} data-i={i} className={`cell is-${c.step}`} title={titleOf(c)} />
          ))}
        </div>
      )}
    </li>
  );
}

const titleOf = (c: Cell) => (c.sites.length === 1 ? `${c.sites[0]}: ${stepName[c.step].toLowerCase()}` : `${c.sites[0]} and ${c.sites.length - 1} more: ${stepName[c.step].toLowerCase()}`);

function WaveState({ wave, current, rollout: r }: { wave: RolloutWave; current: boolean; rollout: RolloutDetail }) {
  if (wave.passedAt) {
    return (
      <span className="muted small">
        passed <Ago time={wave.passedAt} />
      </span>
    );
  }
  if (current && wave.startedAt) {
    const least = r.gates.reduce<{ seconds: number; of: number } | undefined>((m, g) => (g.ofSeconds > 0 && (!m || g.seconds < m.seconds) ? { seconds: g.seconds, of: g.ofSeconds } : m), undefined);
    return (
      <span className="muted small">
        under way, began <Ago time={wave.startedAt} />{" "}
        {least && r.phase === "Progressing" && (
          <>
            <i aria-hidden className="meter" style={{ "--v": Math.min(100, (100 * least.seconds) / least.of) } as React.CSSProperties} /> gates held {formatDuration(least.seconds)} of {formatDuration(least.of)}
          </>
        )}
      </span>
    );
  }
  if (wave.startedAt) {
    return (
      <span className="muted small">
        began <Ago time={wave.startedAt} />, did not pass
      </span>
    );
  }
  return (
    <span className="muted small">
      {r.endedAt ? "never began" : `then soaks ${formatDuration(wave.soakSeconds)}`}
      {wave.approval && !r.endedAt && ", and waits for an approval"}
    </span>
  );
}
