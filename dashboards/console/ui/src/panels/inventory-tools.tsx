import { useEffect, useRef, useState } from "react";
import { Problem } from "../api/client";
import type { SiteFields } from "../api/types";
import { useDeleteView, useSavedViews, useSaveView } from "../api/view-queries";
import { ProblemNote } from "../components/states";
import { columnTitle, DEFAULT_COLUMNS, formatView, type View, viewOf } from "../lib/inventory";
import { siteKey } from "../lib/site";

/** A button with a sheet beneath, which closes when one looks elsewhere. */
function Menu({ label, onToggle, children }: { label: string; onToggle?: (open: boolean) => void; children: React.ReactNode }) {
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
    <details ref={ref} className="inv-menu" onToggle={(e) => onToggle?.(e.currentTarget.open)}>
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
  ...(known?.measured.map((m) => `measured.${m}`) ?? []),
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

/** Views by name, the user's own and the tenant's; a link to one is the page's address. */
export function SavedViews({ view, tenants, onOpen }: { view: View; tenants: readonly string[]; onOpen: (v: View) => void }) {
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("");
  const [into, setInto] = useState("");
  const [share, setShare] = useState(false);
  const [said, setSaid] = useState("");
  const [taken, setTaken] = useState("");
  const list = useSavedViews(view.tenant, open);
  const save = useSaveView();
  const drop = useDeleteView();
  const several = tenants.length > 1;
  const tenant = view.tenant || into || (tenants[0] ?? "");
  const mayShare = list.data?.shareIn.includes(tenant) ?? false;
  const search = formatView(view);
  const failed = (e: unknown) => setSaid(e instanceof Error ? e.message : String(e));
  const keep = (n: string, replace: boolean) => {
    setTaken("");
    save.mutate(
      { name: n, tenant, shared: share && mayShare, view, replace },
      {
        onSuccess: () => {
          setSaid(`${n} is saved.`);
          setName("");
        },
        onError: (e) => {
          if (e instanceof Problem && e.status === 409 && e.fieldFault("name")) setTaken(n);
          failed(e);
        },
      },
    );
  };
  const group = (title: string, shared: boolean) => {
    const views = list.data?.views.filter((v) => v.shared === shared) ?? [];
    return (
      (views.length > 0 || !shared) && (
        <>
          <h2 className="small muted">{title}</h2>
          <ul className="inv-choices" aria-label={title}>
            {views.map((v) => {
              const shown = viewOf(v, view.tenant);
              return (
                <li key={siteKey(v)} className="row spread">
                  <button type="button" className="button quiet truncate" aria-current={formatView(shown) === search} onClick={() => onOpen(shown)}>
                    {v.name}
                    {several && !view.tenant && <span className="muted small"> {v.tenant}</span>}
                  </button>
                  {(!v.shared || list.data?.shareIn.includes(v.tenant)) && (
                    <button type="button" className="button quiet icon" aria-label={`Delete view ${v.name}`} onClick={() => drop.mutate(v, { onSuccess: () => setSaid(`${v.name} is deleted.`), onError: failed })}>
                      ×
                    </button>
                  )}
                </li>
              );
            })}
            {views.length === 0 && <li className="muted small">{list.isPending ? "…" : "None yet. Give the one that you see a name:"}</li>}
          </ul>
        </>
      )
    );
  };
  return (
    <Menu label="Views" onToggle={setOpen}>
      {group("Shared views", true)}
      {group("Your views", false)}
      {list.error && <ProblemNote slim error={list.error} doing="load the views" onRetry={() => void list.refetch()} />}
      <form
        className="inv-save"
        onSubmit={(e) => {
          e.preventDefault();
          const n = name.trim();
          if (!n) return setSaid("A view needs a name.");
          keep(n, false);
        }}
      >
        <div className="row">
          <input className="input" aria-label="Name of the view" placeholder="Name" maxLength={60} value={name} onChange={(e) => setName(e.target.value)} />
          <button type="submit" className="button">
            Save
          </button>
        </div>
        {several && !view.tenant && (
          <label className="small row">
            Keep it in
            <select className="select" value={tenant} onChange={(e) => setInto(e.target.value)}>
              {tenants.map((t) => (
                <option key={t}>{t}</option>
              ))}
            </select>
          </label>
        )}
        {mayShare && (
          <label className="small">
            <input type="checkbox" checked={share} onChange={(e) => setShare(e.target.checked)} /> Share with all users of {tenant}
          </label>
        )}
      </form>
      <p className="small muted" role="status">
        {said}
      </p>
      {taken && taken === name.trim() && (
        <button type="button" className="button" onClick={() => keep(taken, true)}>
          Replace {taken}
        </button>
      )}
    </Menu>
  );
}
