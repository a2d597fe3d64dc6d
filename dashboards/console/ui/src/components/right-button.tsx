import type { ReactNode } from "react";
import { useLack } from "../api/rights";
import type { Right } from "../lib/rights";

/** A button for what needs a right in some tenants. Who lacks it can't press it, and reads why; it stays in reach of the keyboard for that. */
export function RightButton({ need, tenants, className = "button", onClick, children }: { need: Right; tenants: Iterable<string>; className?: string; onClick: () => void; children: ReactNode }) {
  const lack = useLack(need, tenants);
  return (
    <button type="button" className={className} title={lack || undefined} aria-disabled={lack !== "" || undefined} onClick={lack ? undefined : onClick}>
      {children}
    </button>
  );
}
