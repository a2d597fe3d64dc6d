import { type ReactNode, useEffect, useId, useRef } from "react";

interface Props {
  title: string;
  onClose: () => void;
  onSubmit: () => void;
  children: ReactNode;
  /** The buttons; the cancel button is added. */
  actions: ReactNode;
  busy?: boolean;
}

/** A modal question. The browser's own dialog keeps the focus inside and gives it back. */
export function Dialog({ title, onClose, onSubmit, children, actions, busy }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const d = ref.current;
    if (!d) return;
    if (!d.open) d.showModal();
    return () => d.close();
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault();
        if (!busy) onClose();
      }}
      onMouseDown={(e) => {
        if (e.target === ref.current && !busy) onClose(); // the backdrop
      }}
    >
      <form
        noValidate
        onSubmit={(e) => {
          e.preventDefault();
          if (!busy) onSubmit();
        }}
      >
        <h2 id={id} style={{ fontSize: 16 }}>
          {title}
        </h2>
        {children}
        <div className="actions">
          <button type="button" className="button" onClick={onClose} disabled={busy}>
            Cancel
          </button>
          {actions}
        </div>
      </form>
    </dialog>
  );
}
