import { useMemo, useState } from "react";
import type { SiteFields } from "../api/types";
import { complete } from "../lib/inventory";
import { CompleteBox } from "./complete-box";

interface Props {
  value: string;
  onChange: (q: string) => void;
  known: SiteFields | undefined;
  /** What is wrong with the query, or "". */
  fault: string;
}

/** A field for a query over sites: it completes fields, labels and values. */
export function QueryBox({ value, onChange, known, fault }: Props) {
  const [caret, setCaret] = useState<number | undefined>();
  const completion = useMemo(() => (caret === undefined ? undefined : complete(value, Math.min(caret, value.length), known)), [value, caret, known]);
  return <CompleteBox label="Query" value={value} onChange={onChange} onCaret={setCaret} completion={completion} fault={fault} maxLength={2000} placeholder={'kind=store score<60 "disk"'} />;
}
