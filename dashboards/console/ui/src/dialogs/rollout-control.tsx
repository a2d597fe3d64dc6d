import { useControl, type Wish } from "../api/rollout-queries";
import type { RolloutDetail } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { plural } from "../lib/format";
import { targetOf, wouldSkip } from "../lib/rollouts";

const VERBS: Record<Wish["action"], { title: string; button: string; busy: string; doing: string; danger?: boolean }> = {
  pause: { title: "Pause this rollout?", button: "Pause", busy: "Pausing…", doing: "pause the rollout" },
  resume: { title: "Resume this rollout?", button: "Resume", busy: "Resuming…", doing: "resume the rollout" },
  promote: { title: "Promote", button: "Promote", busy: "Promoting…", doing: "promote the wave" },
  abort: { title: "Abort, and put all sites back?", button: "Abort", busy: "Aborting…", doing: "abort the rollout", danger: true },
  retry: { title: "Retry", button: "Retry", busy: "Asking…", doing: "retry the site" },
};

/** Asks once more before a person's wish goes to the rollout. */
export function RolloutControlDialog({ rollout: r, wish, onClose, onDone }: { rollout: RolloutDetail; wish: Wish; onClose: () => void; onDone: () => void }) {
  const control = useControl(r);
  const verb = VERBS[wish.action];
  const title = wish.action === "promote" ? `Promote wave ${wish.wave}?` : wish.action === "retry" ? `Retry ${wish.sites.join(", ")}?` : verb.title;
  return (
    <Dialog title={title} onClose={onClose} busy={control.isPending} onSubmit={() => control.mutate(wish, { onSuccess: onDone })}
      actions={
        <button type="submit" className={verb.danger ? "button danger" : "button primary"} disabled={control.isPending}>
          {control.isPending ? verb.busy : verb.button}
        </button>
      }
    >
      <Text rollout={r} wish={wish} />
      {control.error && <ProblemNote error={control.error} doing={verb.doing} />}
    </Dialog>
  );
}

function Text({ rollout: r, wish }: { rollout: RolloutDetail; wish: Wish }) {
  switch (wish.action) {
    case "pause":
      return <p>No further site gets the change. Those that are getting it now go on, and what has it keeps it.</p>;
    case "resume":
      return (
        <p>
          It goes on where it stopped. The gates of wave {r.wave} are watched anew.
          {!r.paused && " It paused by itself: what failed until now no longer counts, and a wave that was put back begins anew."}
        </p>
      );
    case "abort":
      return (
        <p>
          {plural(r.sites.updated + r.sites.updating + r.sites.failed, "site")} that got the change of <b>{targetOf(r)}</b> get back what they had. This can't be taken back; another rollout can be made.
        </p>
      );
    case "retry":
      return (
        <p>
          Site <b>{wish.sites.join(", ")}</b> tries the change once more, and counts as failed again if it is not ready in time.
        </p>
      );
    case "promote": {
      const skipped = wouldSkip(r);
      return skipped.length > 0 ? (
        <p>
          {skipped.length === 1 ? "A gate does" : `${skipped.length} gates do`} not hold: <b>{skipped.join(", ")}</b>. The next wave begins all the same, and your name stands beside that decision.
        </p>
      ) : (
        <p>All its gates hold. The next wave begins at once, and your name stands beside that decision.</p>
      );
    }
  }
}
