import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { rolloutKey } from "../lib/rollouts";
import { Problem } from "./client";
import { keys } from "./keys";
import { rolloutStream } from "./rollout-queries";
import type { SSECall } from "./sse";

describe("stream of a rollout", () => {
  const ref = { tenant: "acme", namespace: "shop", name: "web/1" };
  const settle = () => vi.advanceTimersByTimeAsync(0);
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("puts what it says where the page reads it, and says while it is away", async () => {
    const client = new QueryClient();
    const calls: (SSECall & { url: string; fail: (p: Problem) => void })[] = [];
    const live: boolean[] = [];
    const stream = rolloutStream(ref, client, (l) => live.push(l), {
      random: () => 0,
      read: (url, call) => new Promise((_ok, fail) => calls.push({ ...call, url, fail })),
    });
    stream.start();
    expect(calls[0]!.url).toBe("/api/v1/rollouts/shop/web%2F1/stream?tenant=acme");
    calls[0]!.onOpen();
    calls[0]!.onEvent({ type: "rollout", id: "", data: '{"name":"web/1","phase":"Progressing"}' });
    expect(client.getQueryData(keys.rollout(rolloutKey(ref)))).toEqual({ name: "web/1", phase: "Progressing" });
    expect(live.at(-1)).toBe(true);

    calls[0]!.fail(new Problem(0, { detail: "lost" }));
    await settle();
    expect(live.at(-1)).toBe(false);
    await vi.advanceTimersByTimeAsync(1000);
    expect(calls).toHaveLength(2);
    calls[1]!.onOpen();
    expect(live.at(-1)).toBe(true);

    const gone = vi.spyOn(client, "invalidateQueries");
    calls[1]!.onEvent({ type: "removed", id: "", data: '{"name":"web/1"}' });
    expect(gone).toHaveBeenCalledWith({ queryKey: keys.rollout(rolloutKey(ref)) });
    stream.stop();
    client.clear();
  });
});
