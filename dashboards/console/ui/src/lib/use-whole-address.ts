import { useEffect } from "react";
import { useLocation, useSearch } from "wouter";

/**
 * Puts what a page chose by itself, such as the first tenant, into its address at once: whoever an address is sent to,
 * copied before anything was changed, may have another first one. href is the whole address, chosen whether there is
 * something to be added; going back leads out of the page all the same.
 */
export function useWholeAddress(href: string, chosen: boolean): void {
  const [, navigate] = useLocation();
  useEffect(() => {
    if (chosen) navigate(href, { replace: true });
  }, [chosen, href, navigate]);
}

/**
 * Puts the tenant of what a page found by its name alone into the page's address: what is done to a site is told by both,
 * and somebody else may read another of that name.
 */
export function useTenantInAddress(found: { tenant: string } | undefined): void {
  const search = useSearch();
  const [path] = useLocation();
  const q = new URLSearchParams(search);
  const missing = found !== undefined && !q.get("tenant");
  if (missing) q.set("tenant", found.tenant);
  useWholeAddress(`${path}?${q.toString()}`, missing);
}
