import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Problem } from "./client";
import { type SSECall, SSEParser } from "./sse";
import type { Link } from "./link";
import { logTail, type TailState } from "./tail";
import type { LogRecord } from "./types";

describe("event stream", () => {
  const all = (pieces: string[]) => {
    const p = new SSEParser();
    return { events: pieces.flatMap((x) => p.push(x)), id: p.lastEventId };
  };

  it("is read however it is cut", () => {
    const text = 'retry: 2000\n\nevent: hits\nid: a\ndata: {"x":\ndata: 1}\n\n: alive\nid: b\n\n';
    const whole = all([text]);
    expect(whole).toEqual({ events: [{ type: "hits", data: '{"x":\n1}', id: "a" }], id: "b" });
    expect(all([...text])).toEqual(whole);
    expect(all([...text.replaceAll("\n", "\r\n")])).toEqual(whole);
  });

  it("gives an event only when it is whole", () => {
    expect(all(["event: hits\nid: a\ndata: {}\n"])).toEqual({ events: [], id: "" });
  });

  it("takes an event without a type as a message, and ids without data as the position alone", () => {
    expect(all(["data:x\n\n", "id: 7\n\n"])).toEqual({ events: [{ type: "message", data: "x", id: "" }], id: "7" });
  });
});

describe("log tail", () => {
  let calls: (SSECall & { end: () => void; fail: (p: Problem) => void })[];
  let states: TailState[];
  let hits: string[];
  let opens: boolean[];
  let tail: Link;
  let random: number;
  const last = () => calls.at(-1)!;
  const settle = () => vi.advanceTimersByTimeAsync(0);
  const say = (id: string, ...messages: string[]) => last().onEvent({ type: "hits", id, data: JSON.stringify({ hits: messages.map((message) => ({ message })) }) });

  beforeEach(() => {
    vi.useFakeTimers();
    calls = [];
    states = [];
    hits = [];
    opens = [];
    random = 0;
    tail = logTail({
      url: "/tail",
      random: () => random,
      onHits: (h: LogRecord[]) => hits.push(...h.map((x) => x.message)),
      onMissing: () => {},
      onState: (s) => states.push(s),
      onOpen: (resumed) => opens.push(resumed),
      read: (_url, call) =>
        new Promise((ok, fail) => {
          calls.push({ ...call, end: ok, fail });
          call.signal.addEventListener("abort", () => fail(new DOMException("", "AbortError")));
        }),
    });
    tail.start();
  });
  afterEach(() => {
    tail.stop();
    vi.useRealTimers();
  });

  it("goes on where it was lost", async () => {
    last().onOpen();
    say("id-1", "a");
    last().onId("id-2"); // a position without lines
    last().end();
    await settle();
    expect(states.at(-1)).toMatchObject({ kind: "reconnecting", error: null });
    await vi.advanceTimersByTimeAsync(600);
    expect(calls).toHaveLength(2);
    expect(last().lastEventId).toBe("id-2");
    last().onOpen();
    expect(opens).toEqual([false, true]);
    expect(states.at(-1)).toEqual({ kind: "live" });
  });

  it("waits longer each time", async () => {
    random = 1;
    for (let i = 0; i < 3; i++) {
      last().fail(new Problem(503, { detail: "no" }));
      await settle();
      await vi.advanceTimersByTimeAsync(500 + 1000 * 2 ** i - 1);
      expect(calls).toHaveLength(i + 1);
      await vi.advanceTimersByTimeAsync(1);
      expect(calls).toHaveLength(i + 2);
    }
  });

  it("is held and resumed without a loss", async () => {
    last().onOpen();
    say("id-1", "a");
    const first = last();
    tail.hold();
    await settle();
    expect(states.at(-1)).toMatchObject({ kind: "held" });
    expect(first.signal.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(calls).toHaveLength(1);
    tail.resume();
    expect(last().lastEventId).toBe("id-1");
    first.onEvent({ type: "hits", id: "id-9", data: '{"hits":[{"message":"late"}]}' }); // of the connection that was let go
    expect(hits).toEqual(["a"]);
  });

  it("gives up when it is refused", async () => {
    last().fail(new Problem(400, { errors: [{ field: "query", detail: "bad" }] }));
    await settle();
    expect(states.at(-1)).toMatchObject({ kind: "failed", error: { status: 400 } });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(calls).toHaveLength(1);
  });

  it("begins anew when the server no longer knows the position", async () => {
    last().onOpen();
    say("old", "a");
    last().end();
    await vi.advanceTimersByTimeAsync(600);
    last().fail(new Problem(400, { errors: [{ field: "Last-Event-ID", detail: "is not an id of this stream" }] }));
    await vi.advanceTimersByTimeAsync(3000);
    expect(last().lastEventId).toBe("");
    last().onOpen();
    expect(opens).toEqual([false, false]); // what was missed is searched for
  });

  it("takes a silent connection for dead", async () => {
    last().onOpen();
    last().onHeard();
    await vi.advanceTimersByTimeAsync(44_000);
    expect(last().signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(2000);
    expect(calls).toHaveLength(2);
  });

  it("says nothing after it was stopped", async () => {
    const before = states.length;
    tail.stop();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(states).toHaveLength(before);
    expect(calls).toHaveLength(1);
  });
});
