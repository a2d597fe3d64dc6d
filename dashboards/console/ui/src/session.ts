import type { QueryClient } from "@tanstack/react-query";
import { Store } from "./lib/store";

export type Auth = { state: "in" } | { state: "out"; message: string };

export const auth = new Store<Auth>({ state: "out", message: "" });

/** Forgets everything that was read, and shows the login page with the message. */
export function endSession(client: QueryClient, message: string): void {
  if (auth.get().state === "out") return;
  auth.set({ state: "out", message });
  client.clear();
}
