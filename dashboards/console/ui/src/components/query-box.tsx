import { type KeyboardEvent, useId, useMemo, useRef, useState } from "react";
import type { SiteFields } from "../api/types";
import { complete } from "../lib/inventory";

interface Props {
  value: string;
  onChange: (q: string) => void;
  known: SiteFields | undefined;
  /** What is wrong with the query, or "". */
  fault: string;
}

/** A field for a query over sites: it completes fields, labels and values, and says what is wrong beneath. */
export function QueryBox({ value, onChange, known, fault }: Props) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [caret, setCaret] = useState<number | undefined>(); // while completions are wanted
  const [active, setActive] = useState(-1);
  const completion = useMemo(() => (caret === undefined ? undefined : complete(value, Math.min(caret, value.length), known)), [value, caret, known]);
  const close = () => setCaret(undefined);
  const take = (i: number) => {
    const option = completion?.options[i];
    if (!completion || !option) return;
    const next = value.slice(0, completion.from) + option.text + value.slice(completion.to);
    const end = completion.from + option.text.length;
    onChange(next);
    close();
    // After React has written the value.
    requestAnimationFrame(() => {
      input.current?.focus();
      input.current?.setSelectionRange(end, end);
    });
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (!completion) return;
    const n = completion.options.length;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      setActive((a) => (e.key === "ArrowDown" ? (a + 1) % n : a <= 0 ? n - 1 : a - 1));
    } else if ((e.key === "Enter" || e.key === "Tab") && active >= 0) {
      e.preventDefault();
      take(active);
    } else if (e.key === "Escape") {
      e.preventDefault();
      close();
    }
  };
  return (
    <div className="query-box">
      <input ref={input} className="input mono" type="text" role="combobox" aria-label="Query" aria-expanded={completion !== undefined} aria-controls={`${id}-list`} aria-autocomplete="list"
        aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined} aria-invalid={fault !== ""} aria-describedby={`${id}-fault`} autoComplete="off" autoCapitalize="off" spellCheck={false} maxLength={2000}
        placeholder={'kind=store score<60 "disk"'} value={value}
        onChange={(e) => {
          onChange(e.target.value);
          setCaret(e.target.selectionStart ?? e.target.value.length);
          setActive(-1);
        }}
        onKeyDown={onKeyDown} onBlur={close} />
      <ul id={`${id}-list`} role="listbox" aria-label="Completions" hidden={!completion}>
        {completion?.options.map((o, i) => (
          <li key={o.text} id={`${id}-${i}`} role="option" aria-selected={i === active} onMouseDown={(e) => e.preventDefault()} onClick={() => take(i)}>
            <code>{o.text}</code>
            <span className="muted small truncate">{o.note}</span>
          </li>
        ))}
      </ul>
      <p id={`${id}-fault`} className="fault" role="alert">
        {fault}
      </p>
    </div>
  );
}
