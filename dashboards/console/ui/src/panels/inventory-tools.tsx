import { useEffect, useRef, useState } from "react";
import type { SiteFields } from "../api/types";
import { columnTitle, DEFAULT_COLUMNS, formatView, loadViews, parseView, type Saved, saveViews, type View } from "../lib/inventory";

/** A button with a sheet beneath, which closes when one looks elsewhere. */
function Menu({ label, children }: { label: string; children: React.ReactNode }) {
  const ref = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const away = (e: Event) => {
      const d = ref.current;
      if (d?.open && !d.contains(e.target as Node)) d.open = false;
    };
    const escape = (e: KeyboardEvent) => {
      const d = ref.current;
      if (e.key !== "Escape" || !d?.open) return;
      d.open = false;
      d.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("keydown", escape);
    };
  }, []);
  return (
    <details ref={ref} className="inv-menu">
      <summary className="button">{label}</summary>
      <div className="inv-sheet">{children}</div>
    </details>
  );
}

/** Every column that a table can have. */
const choicesOf = (known: SiteFields | undefined): string[] => [
  ...(known?.fields.filter((f) => !f.keyed).map((f) => f.name) ?? DEFAULT_COLUMNS),
  "version",
  ...(known?.labels.map((l) => `label.${l.key}`) ?? []),
  ...(known?.versions.filter((v) => v.key !== "agent" && v.key !== "kubernetes").map((v) => `version.${v.key}`) ?? []),
];

export function ColumnChooser({ columns, known, onChange }: { columns: readonly string[]; known: SiteFields | undefined; onChange: (columns: readonly string[]) => void }) {
  const [text, setText] = useState("");
  const all = [...new Set([...columns, ...choicesOf(known)])];
  const shown = all.filter((c) => `${c} ${columnTitle(c)}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <Menu label="Columns">
      <input className="input" type="search" aria-label="Search columns" placeholder="Search columns…" value={text} onChange={(e) => setText(e.target.value)} />
      <ul className="inv-choices">
        {shown.map((c) => (
          <li key={c}>
            <label>
              <input type="checkbox" checked={columns.includes(c)} disabled={c === "name"} onChange={(e) => onChange(e.target.checked ? [...columns, c] : columns.filter((x) => x !== c))} />
              {columnTitle(c)} <span className="muted small mono">{c}</span>
            </label>
          </li>
        ))}
      </ul>
      <button type="button" className="button" onClick={() => onChange(DEFAULT_COLUMNS)}>
        As at first
      </button>
    </Menu>
  );
}

export function GroupSelect({ group, known, onChange }: { group: string; known: SiteFields | undefined; onChange: (group: string) => void }) {
  const labels = known?.labels.map((l) => `label.${l.key}`) ?? [];
  const fields = [...(known?.fields.filter((f) => f.grouped && !f.keyed).map((f) => f.name) ?? []), "version", ...(known?.versions.filter((v) => v.key !== "agent" && v.key !== "kubernetes").map((v) => `version.${v.key}`) ?? [])];
  const option = (c: string) => (
    <option key={c} value={c}>
      {columnTitle(c)}
    </option>
  );
  return (
    <select className={group ? "select set inv-groupby" : "select inv-groupby"} aria-label="Group by" value={group} onChange={(e) => onChange(e.target.value)}>
      <option value="">No groups</option>
      {group && !labels.includes(group) && !fields.includes(group) && option(group)}
      <optgroup label="Labels">{labels.map(option)}</optgroup>
      <optgroup label="Fields">{fields.map(option)}</optgroup>
    </select>
  );
}

/** Views by name, kept in this browser; a link to one is the page's address. */
export function SavedViews({ view, onOpen }: { view: View; onOpen: (v: View) => void }) {
  const [views, setViews] = useState<Saved[]>(() => loadViews());
  const [name, setName] = useState("");
  const [said, setSaid] = useState("");
  const search = formatView(view);
  const keep = (list: Saved[], text: string) => {
    setViews(list);
    setSaid(saveViews(list) ? text : "This browser keeps nothing; the view is gone when the page is closed.");
  };
  return (
    <Menu label="Views">
      <ul className="inv-choices" aria-label="Saved views">
        {views.map((v) => (
          <li key={v.name} className="row spread">
            <button type="button" className="button quiet truncate" aria-current={v.search === search} onClick={() => onOpen(parseView(v.search))}>
              {v.name}
            </button>
            <button type="button" className="button quiet icon" aria-label={`Delete view ${v.name}`} onClick={() => keep(views.filter((x) => x !== v), `${v.name} is deleted.`)}>
              ×
            </button>
          </li>
        ))}
        {views.length === 0 && <li className="muted small">None yet. Give the one that you see a name:</li>}
      </ul>
      <form
        className="row"
        onSubmit={(e) => {
          e.preventDefault();
          const n = name.trim();
          if (!n) return setSaid("A view needs a name.");
          keep([...views.filter((v) => v.name !== n), { name: n, search }].sort((a, b) => (a.name < b.name ? -1 : 1)), `${n} is saved in this browser.`);
          setName("");
        }}
      >
        <input className="input" aria-label="Name of the view" placeholder="Name" maxLength={60} value={name} onChange={(e) => setName(e.target.value)} />
        <button type="submit" className="button">
          Save
        </button>
      </form>
      <p className="small muted" role="status">
        {said}
      </p>
    </Menu>
  );
}
