// The zone of every clock in the console: the reader's own, or UTC as logs and other people have it.

import { Store } from "./store";

export type Zone = "local" | "UTC";

const KEY = "muster.zone";

function stored(): Zone {
  try {
    return localStorage.getItem(KEY) === "UTC" ? "UTC" : "local";
  } catch {
    return "local"; // storage is blocked
  }
}

export const zone = new Store<Zone>(stored());

export function setZone(z: Zone): void {
  try {
    if (z === "UTC") localStorage.setItem(KEY, z);
    else localStorage.removeItem(KEY);
  } catch {
    // It lasts until the page is closed.
  }
  zone.set(z);
}

/** The zone's name in the IANA data base. */
export const zoneName = (): string => (zone.get() === "UTC" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
