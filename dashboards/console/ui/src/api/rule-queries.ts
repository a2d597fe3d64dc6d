import { useMutation, useQuery } from "@tanstack/react-query";
import type { RuleObject } from "../lib/load";
import { api } from "./client";
import { keys } from "./keys";
import type { AlertRules } from "./types";

const path = "/api/v1/alertrules";

/** Makes alert rules, once the API server has said that it would take them. */
export function useMakeRules() {
  return useMutation({
    mutationFn: async ({ tenant, rule }: { tenant: string; rule: RuleObject }) => {
      await api<AlertRules>("POST", path, { params: { tenant }, body: { ...rule, dryRun: true } });
      return api<AlertRules>("POST", path, { params: { tenant }, body: rule });
    },
  });
}

/** How far alert rules have come; asked again until every regional has them. */
export function useAlertRules(of: AlertRules) {
  return useQuery({
    queryKey: keys.alertRules(of.tenant, of.name),
    queryFn: ({ signal }) => api<AlertRules>("GET", `${path}/${encodeURIComponent(of.name)}`, { params: { tenant: of.tenant }, signal }),
    initialData: of,
    refetchInterval: (q) => (q.state.data?.applied === "True" ? false : 3000),
  });
}
