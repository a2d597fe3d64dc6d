import type { SiteReset } from "../api/types";

/** The phases in their order; a reset ends in one of the others where it goes wrong. */
export const STEPS = ["Asked", "Confirmed", "Resetting", "Completed"] as const;

export const underWay = (r: SiteReset): boolean => r.phase === "Asked" || r.phase === "Confirmed" || r.phase === "Resetting";

/** What a phase means, for people. */
export const phaseText: Record<SiteReset["phase"], string> = {
  Asked: "The site is asked, and has not answered.",
  Confirmed: "The site has answered, and is given its order.",
  Resetting: "The site has begun. There is no way back.",
  Completed: "The site is back, with a new key.",
  Expired: "The site did not begin in time, and is as it was.",
  Refused: "The site refused, and is as it was.",
  Cancelled: "The request was taken back before the site had begun.",
};

export const OVERDUE = "It should have been back by now. Look whether the machine has power and its uplink, and at its log. If it is gone, decommission the site: its former certificate is good until it ends.";
