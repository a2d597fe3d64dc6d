import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { api } from "../api/client";
import { keys } from "../api/keys";
import type { Runbook } from "../api/types";
import { ProblemNote, Skeleton } from "./states";

const SafeMarkdown = lazy(() => import("./markdown")); // its parser is as large as a page

/** The text that ships with Muster for an alert. */
export function useRunbook(alert: string) {
  return useQuery({
    queryKey: keys.runbook(alert),
    queryFn: ({ signal }) => api<Runbook>("GET", `/api/v1/runbooks/${encodeURIComponent(alert)}`, { signal }),
    staleTime: Infinity,
  });
}

export function RunbookText({ alert }: { alert: string }) {
  const { data, error, refetch } = useRunbook(alert);
  if (error) return <ProblemNote slim error={error} doing="load the runbook" onRetry={() => void refetch()} />;
  if (!data) return <Skeleton height={14} count={3} />;
  return (
    <Suspense fallback={<Skeleton height={14} count={3} />}>
      <SafeMarkdown text={data.markdown} />
    </Suspense>
  );
}
