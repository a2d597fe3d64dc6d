import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Problem } from "./client";
import type { SSECall } from "./sse";
import { LiveStream, type LiveState } from "./stream";

type Call = SSECall & { end: () => void; fail: (p: Problem) => void };

let calls: Call[];
let states: LiveState[];
let events: [string, unknown][];
let connects: number;
let stream: LiveStream;
const last = () => calls.at(-1)!;
const kinds = () => states.map((s) => s.kind);
const say = (type: string, data: string) => {
  last().onHeard();
  last().onEvent({ type, data, id: "7" });
};
const lose = async () => {
  last().fail(new Problem(0, {}));
  await vi.advanceTimersByTimeAsync(0);
};

beforeEach(() => {
  vi.useFakeTimers({ now: 1_700_000_000_000 });
  calls = [];
  states = [];
  events = [];
  connects = 0;
  stream = new LiveStream({
    url: "/stream",
    onEvent: (type, data) => events.push([type, data]),
    onConnect: () => connects++,
    onState: (s) => states.push(s),
    random: () => 0.5,
    read: (_url, call) =>
      new Promise((ok, fail) => {
        calls.push({ ...call, end: ok, fail });
        call.signal.addEventListener("abort", () => fail(new DOMException("", "AbortError")));
      }),
  });
  stream.start();
});
afterEach(() => {
  stream.stop();
  vi.useRealTimers();
});

describe("LiveStream", () => {
  it("is live once connected, and reads the lists then", () => {
    expect(kinds()).toEqual([]);
    last().onOpen();
    expect(kinds()).toEqual(["live"]);
    expect(connects).toBe(1);
    say("tick", '{"asOf":"2026-01-01T00:00:00Z"}');
    say("sites", "{cut");
    expect(events).toEqual([["tick", { asOf: "2026-01-01T00:00:00Z" }]]);
  });

  it("reconnects after a loss, from the beginning, and reads the lists again", async () => {
    last().onOpen();
    say("tick", "{}");
    await lose();
    expect(kinds()).toEqual(["live", "reconnecting"]);
    await vi.advanceTimersByTimeAsync(1500);
    expect(calls).toHaveLength(2);
    expect(last().lastEventId).toBe("");
    last().onOpen();
    expect(kinds()).toEqual(["live", "reconnecting", "live"]);
    expect(connects).toBe(2);
  });

  it("waits longer each time, and says since when the page is stale", async () => {
    last().onOpen();
    const lostAt = Date.now();
    const tries: number[] = [];
    for (let i = 0; i < 6; i++) {
      await lose();
      const before = calls.length;
      const t = Date.now();
      while (calls.length === before) await vi.advanceTimersByTimeAsync(100);
      tries.push(Date.now() - t);
    }
    expect(tries).toEqual([...tries].sort((a, b) => a - b));
    expect(tries.at(-1)).toBeLessThanOrEqual(8000);
    await vi.advanceTimersByTimeAsync(31_000);
    expect(states.at(-1)).toEqual({ kind: "stale", since: lostAt });
    expect(kinds()).toEqual(["live", "reconnecting", "stale"]);
  });

  it("goes on trying when it is refused: rights come back", async () => {
    last().onOpen();
    last().fail(new Problem(403, {}));
    await vi.advanceTimersByTimeAsync(2000);
    expect(calls).toHaveLength(2);
    last().onOpen();
    expect(states.at(-1)).toEqual({ kind: "live" });
    await vi.advanceTimersByTimeAsync(40_000);
    expect(states.at(-1)).toEqual({ kind: "live" }); // not stale for what is over
  });

  it("takes a silent connection for dead", async () => {
    last().onOpen();
    for (let i = 0; i < 4; i++) {
      await vi.advanceTimersByTimeAsync(15_000);
      say("tick", "{}");
    }
    expect(kinds()).toEqual(["live"]);
    const first = last();
    await vi.advanceTimersByTimeAsync(47_000);
    expect(kinds().at(-1)).not.toBe("live");
    expect(first.signal.aborted).toBe(true);
    expect(calls.length).toBeGreaterThan(1);
  });

  it("is patient with installations that tick seldom", async () => {
    last().onOpen();
    for (let i = 0; i < 3; i++) {
      say("tick", "{}");
      await vi.advanceTimersByTimeAsync(40_000);
    }
    say("tick", "{}");
    last().onHeard();
    await vi.advanceTimersByTimeAsync(100_000);
    expect(kinds()).toEqual(["live"]);
  });

  it("notices at once, when told to look, that it was asleep", async () => {
    last().onOpen();
    vi.setSystemTime(Date.now() + 600_000); // timers slept with the laptop
    stream.nudge();
    await vi.advanceTimersByTimeAsync(0);
    expect(kinds().at(-1)).toBe("stale");
    stream.nudge();
    expect(calls).toHaveLength(2);
  });

  it("hears nothing from a connection that it gave up", async () => {
    last().onOpen();
    const old = last();
    await lose();
    await vi.advanceTimersByTimeAsync(1500);
    old.onEvent({ type: "tick", data: "{}", id: "" });
    old.onOpen();
    expect(events).toEqual([]);
    expect(connects).toBe(1);
  });

  it("lets go when told so, and comes back", async () => {
    last().onOpen();
    stream.pause();
    expect(last().signal.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(calls).toHaveLength(1);
    expect(states.at(-1)?.kind).toBe("stale");
    stream.nudge();
    expect(calls).toHaveLength(2);
    last().onOpen();
    expect(states.at(-1)?.kind).toBe("live");
  });
});
