import { type KeyboardEvent, useId, useRef, useState } from "react";
import type { Completion } from "../lib/inventory";

interface Props {
  /** What the field is, for those who can't see it. */
  label: string;
  value: string;
  onChange: (q: string) => void;
  /** Where completions are wanted; undefined while they are not. */
  onCaret: (caret: number | undefined) => void;
  completion: Completion | undefined;
  /** What is wrong with the text, or "". */
  fault: string;
  placeholder: string;
  maxLength: number;
  /** Several lines; Enter without Shift then sends. */
  onSend?: () => void;
}

/** A field that completes what is typed, and says beneath what is wrong with it. */
export function CompleteBox({ label, value, onChange, onCaret, completion, fault, placeholder, maxLength, onSend }: Props) {
  const id = useId();
  const input = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const [active, setActive] = useState(-1);
  const close = () => onCaret(undefined);
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
    if (onSend && e.key === "Enter" && !e.shiftKey && !(completion && active >= 0)) {
      e.preventDefault();
      close();
      onSend();
    }
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
  const props = {
    ref: input, "aria-label": label, "aria-controls": `${id}-list`, "aria-autocomplete": "list" as const,
    "aria-activedescendant": active >= 0 ? `${id}-${active}` : undefined, "aria-invalid": fault !== "", "aria-describedby": `${id}-fault`, autoComplete: "off", autoCapitalize: "off", spellCheck: false,
    maxLength, placeholder, value,
    onChange: (e: { target: HTMLInputElement | HTMLTextAreaElement }) => {
      onChange(e.target.value);
      onCaret(e.target.selectionStart ?? e.target.value.length);
      setActive(-1);
    },
    onKeyDown, onBlur: close,
  };
  return (
    <div className="query-box">
      {onSend ? <textarea className="input mono" rows={Math.min(8, Math.max(2, value.split("\n").length))} {...props} /> : <input className="input mono" type="text" role="combobox" aria-expanded={completion !== undefined} {...props} />}
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
