import { useState } from "react";
import { useSilenceGroups } from "../api/alert-queries";
import type { AlertGroup } from "../api/types";
import { Dialog } from "../components/dialog";
import { isForbidden } from "../components/service-note";
import { ProblemNote } from "../components/states";
import { commonLabels, firing, groupKey, nameOf } from "../lib/alert-group";
import { formatCount, plural } from "../lib/format";
import { checkMatchers, formatMatcher, matchersOf } from "../lib/matchers";
import { SilenceTerms, useTerms } from "./silence-terms";

/** Silences several groups at once, each by what its alerts have in common. onDone gets the keys of those that are silenced now. */
export function SilenceGroupsDialog({ groups, tenants, onClose, onDone }: { groups: readonly AlertGroup[]; tenants: boolean; onClose: () => void; onDone: (keys: readonly string[], text: string) => void }) {
  const [left, setLeft] = useState(groups);
  const [tried, setTried] = useState(false);
  const silence = useSilenceGroups();
  const terms = useTerms();
  const rows = left.map((group) => {
    const matchers = matchersOf(commonLabels(group));
    return { key: groupKey(group), group, matchers, fault: checkMatchers(matchers) };
  });
  const fit = rows.filter((r) => r.fault === "");
  const submit = () => {
    setTried(true);
    if (!terms.agreed || fit.length === 0) return;
    const { agreed } = terms;
    silence.mutate(
      { all: fit.map((r) => ({ key: r.key, tenant: r.group.tenant, request: { matchers: r.matchers, ...agreed.request } })) },
      {
        onSuccess: ({ done, failed }) => {
          if (!failed) return onDone(done, `${plural(done.length, "silence lasts", "silences last")} ${agreed.words}.`);
          setLeft((all) => all.filter((g) => !done.includes(groupKey(g))));
        },
      },
    );
  };
  const failed = silence.data?.failed;
  return (
    <Dialog title={`Silence ${plural(rows.length, "group")}`} onClose={onClose} onSubmit={submit} busy={silence.isPending}
      actions={
        <button type="submit" className="button primary" disabled={silence.isPending || fit.length === 0}>
          {silence.isPending ? "Silencing…" : `Make ${plural(fit.length, "silence")}`}
        </button>
      }
    >
      <p className="muted">A silence for each, also of alerts that come later and have the same labels.</p>
      <ul className="silence-groups" aria-label="Groups to silence">
        {rows.map((r) => (
          <li key={r.key}>
            <b>{nameOf(r.group)}</b>{" "}
            <span className="muted small">
              {formatCount(firing(r.group))} firing{tenants && `, ${r.group.tenant}`}
            </span>
            {r.fault ? <p className="fault">Its alerts have no label in common that would tell them from others: silence them one by one.</p> : <p className="small mono">{r.matchers.map(formatMatcher).join(" ")}</p>}
          </li>
        ))}
      </ul>
      <SilenceTerms terms={terms} tried={tried} said={() => ""} />
      {failed && <ProblemNote error={failed} doing={isForbidden(failed) ? "silence them all: you lack the right to create silences.muster.dev here" : `silence ${left.length < groups.length ? "those that are left" : "them"}`} />}
    </Dialog>
  );
}
