import { useDeletePod } from "../api/vk8s-queries";
import type { Pod } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import type { VirtualRef } from "../lib/workloads";

export function DeletePodDialog({ pod, virtual, onClose, onDone }: { pod: Pod; virtual: VirtualRef; onClose: () => void; onDone: () => void }) {
  const remove = useDeletePod(virtual);
  return (
    <Dialog title={`Delete ${pod.name}?`} onClose={onClose} busy={remove.isPending} onSubmit={() => remove.mutate(pod.name, { onSuccess: onDone })}
      actions={
        <button type="submit" className="button danger" disabled={remove.isPending}>
          {remove.isPending ? "Deleting…" : "Delete"}
        </button>
      }
    >
      <p>
        The pod on site <b>{pod.site}</b> is deleted as soon as the site hears of it, and what owns it makes another there. The workload stays as it is.
      </p>
      {remove.error && <ProblemNote error={remove.error} doing="delete the pod" />}
    </Dialog>
  );
}
