import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { DEFAULT_COLUMNS, type View } from "../lib/inventory";
import { api } from "./client";
import { keys } from "./keys";
import type { SavedView, SavedViewList } from "./types";

/** The user's own views and those that are shared, of one tenant or, with "", of all. */
export function useSavedViews(tenant: string, enabled: boolean) {
  return useQuery({
    queryKey: keys.savedViews(tenant),
    queryFn: ({ signal }) => api<SavedViewList>("GET", "/api/v1/views", { params: { tenant }, signal }),
    enabled,
  });
}

const pathOf = (name: string): string => `/api/v1/views/${encodeURIComponent(name)}`;

/** Saves a view under a name: one that is there already is a conflict, unless it is to be replaced. */
export function useSaveView() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ name, tenant, shared, view, replace }: { name: string; tenant: string; shared: boolean; view: View; replace: boolean }) =>
      api<SavedView>("PUT", pathOf(name), {
        params: { tenant, ...(shared && { shared: "true" }), ...(!replace && { new: "true" }) },
        body: { query: view.q, sort: view.sort, columns: view.columns.join() === DEFAULT_COLUMNS.join() ? [] : view.columns, group: view.group },
      }),
    onSettled: () => client.invalidateQueries({ queryKey: ["savedViews"] }),
  });
}

export function useDeleteView() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (v: SavedView) => api<void>("DELETE", pathOf(v.name), { params: { tenant: v.tenant, ...(v.shared && { shared: "true" }) } }),
    onSettled: () => client.invalidateQueries({ queryKey: ["savedViews"] }),
  });
}
