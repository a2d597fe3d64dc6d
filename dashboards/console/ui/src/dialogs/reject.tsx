import { useReject } from "../api/queries";
import type { Registration } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { siteKey } from "../lib/site";

export function RejectDialog({ site, onClose, onDone }: { site: Registration; onClose: () => void; onDone: () => void }) {
  const reject = useReject();
  return (
    <Dialog title={`Reject ${site.name}?`} onClose={onClose} busy={reject.isPending} onSubmit={() => reject.mutate(site, { onSuccess: onDone })}
      actions={
        <button type="submit" className="button danger" disabled={reject.isPending}>
          {reject.isPending ? "Rejecting…" : "Reject"}
        </button>
      }
    >
      <p>
        The machine's key is refused for good. To let it in after all, delete the Site <code>{siteKey(site)}</code> and register the machine anew.
      </p>
      {reject.error && <ProblemNote error={reject.error} doing="reject the site" />}
    </Dialog>
  );
}
