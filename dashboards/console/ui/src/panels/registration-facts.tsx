import type { Registration } from "../api/types";
import { discovered } from "../lib/labels";
import { Labels } from "./site-facts";

/** What a machine brought: its own facts, its token's labels, its key. */
export function Facts({ of: r }: { of: Registration }) {
  return (
    <dl className="kv facts small">
      <dt>Discovered</dt>
      <dd>
        <Labels labels={discovered(r.systemLabels ?? {})} none="nothing" />
      </dd>
      <dt>Labels</dt>
      <dd>
        <Labels labels={r.labels ?? {}} none="none from the token" />
      </dd>
      {r.publicKey && (
        <>
          <dt>Key (SHA-256)</dt>
          <dd>
            <code>{r.publicKey}</code>
          </dd>
        </>
      )}
    </dl>
  );
}
