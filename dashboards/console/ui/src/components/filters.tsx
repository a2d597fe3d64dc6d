import { useEffect, useRef, useState } from "react";

const TYPING_MS = 300;

/** Text that is typed: what stands in the field, and what is told once nobody types. A value that changes by itself (back, forward, a link) replaces it. */
export function useTyped(value: string, onChange: (v: string) => void): [string, (v: string) => void] {
  const [text, setText] = useState(value);
  const told = useRef(value);
  useEffect(() => {
    if (value !== told.current) setText(value);
    told.current = value;
  }, [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => {
      told.current = text;
      onChange(text);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return [text, setText];
}

/** One tenant or all of them, or with one just one; nothing where there is no choice. A tenant that is chosen is shown although it is not among them. */
export function TenantSelect({ value, tenants, width, one = false, onChange }: { value: string; tenants: readonly string[]; width?: number; one?: boolean; onChange: (tenant: string) => void }) {
  if (tenants.length <= 1 && (!value || (one && tenants.includes(value)))) return null;
  return (
    <select className={value && !one ? "select set" : "select"} style={width ? { width } : undefined} aria-label="Tenant" value={value} onChange={(e) => onChange(e.target.value)}>
      {!one && <option value="">All tenants</option>}
      {(value && !tenants.includes(value) ? [value, ...tenants] : tenants).map((t) => (
        <option key={t}>{t}</option>
      ))}
    </select>
  );
}
