import { useEffect } from "react";
import { useLocation } from "wouter";

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
