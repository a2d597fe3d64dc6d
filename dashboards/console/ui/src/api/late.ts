import { useEffect } from "react";
import type { MissingRegion } from "./types";

/** How long a page waits for regionals once one has answered. */
export const PATIENCE = "2s";

interface Answer {
  isFetching: boolean;
  isPlaceholderData: boolean;
  isRefetchError: boolean;
  refetch: () => Promise<unknown>;
}

/** Asks once more, for as long as they may take, where regionals were late. */
export function useLate({ isFetching, isPlaceholderData, isRefetchError, refetch }: Answer, pages: readonly { missingRegions: readonly MissingRegion[] }[]) {
  const late = !isPlaceholderData && pages.some((p) => p.missingRegions.some((r) => r.late));
  useEffect(() => {
    if (late && !isFetching && !isRefetchError) void refetch();
  }, [late, isFetching, isRefetchError, refetch]);
}
