import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";
import { formatView, parseView, type View } from "./inventory";

/**
 * The view that stands in a page's address, and how it is changed there. What is not of a view goes with each change:
 * more has it by parameter; an empty one is left out.
 */
export function useView(path: string): { view: View; search: string; change: (v: Partial<View>, more?: Record<string, string>) => void } {
  const search = useSearch();
  const view = useMemo(() => parseView(search), [search]);
  const [, navigate] = useLocation();
  const change = useCallback(
    (v: Partial<View>, more: Record<string, string> = {}) => {
      const p = new URLSearchParams(formatView({ ...view, ...v }));
      for (const [name, value] of Object.entries(more)) if (value) p.set(name, value);
      const s = p.toString();
      navigate(s ? `${path}?${s}` : path, { replace: true });
    },
    [view, navigate, path],
  );
  return { view, search, change };
}
