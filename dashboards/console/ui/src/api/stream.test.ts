import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveStream, type LiveState, type Source } from "./stream";

class FakeSource implements Source {
  onopen: ((e: Event) => void) | null = null;
  onerror: ((e: Event) => void) | null = null;
  closed = false;
  private readonly listeners = new Map<string, (e: MessageEvent<string>) => void>();
  addEventListener(type: string, f: (e: MessageEvent<string>) => void) {
    this.listeners.set(type, f);
  }
  close() {
    this.closed = true;
  }
  say(type: string, data: string) {
    this.listeners.get(type)?.({ data } as MessageEvent<string>);
  }
}

let sources: FakeSource[];
let states: LiveState[];
let events: [string, unknown][];
let connects: number;
let stream: LiveStream;
const last = () => sources.at(-1)!;
const kinds = () => states.map((s) => s.kind);

beforeEach(() => {
  vi.useFakeTimers({ now: 1_700_000_000_000 });
  sources = [];
  states = [];
  events = [];
  connects = 0;
  stream = new LiveStream({
    open: () => {
      const s = new FakeSource();
      sources.push(s);
      return s;
    },
    onEvent: (type, data) => events.push([type, data]),
    onConnect: () => connects++,
    onState: (s) => states.push(s),
    random: () => 0.5,
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
    last().onopen?.(new Event("open"));
    expect(kinds()).toEqual(["live"]);
    expect(connects).toBe(1);
    last().say("tick", '{"asOf":"2026-01-01T00:00:00Z"}');
    last().say("sites", "{cut");
    expect(events).toEqual([["tick", { asOf: "2026-01-01T00:00:00Z" }]]);
  });

  it("reconnects after a loss, and reads the lists again", () => {
    last().onopen?.(new Event("open"));
    last().onerror?.(new Event("error"));
    expect(kinds()).toEqual(["live", "reconnecting"]);
    expect(sources[0]!.closed).toBe(true);
    vi.advanceTimersByTime(1000);
    expect(sources).toHaveLength(2);
    last().onopen?.(new Event("open"));
    expect(kinds()).toEqual(["live", "reconnecting", "live"]);
    expect(connects).toBe(2);
  });

  it("waits longer each time, and says since when the page is stale", () => {
    last().onopen?.(new Event("open"));
    const lostAt = Date.now();
    const tries: number[] = [];
    for (let i = 0; i < 6; i++) {
      last().onerror?.(new Event("error"));
      const before = sources.length;
      const t = Date.now();
      while (sources.length === before) vi.advanceTimersByTime(100);
      tries.push(Date.now() - t);
    }
    expect(tries).toEqual([...tries].sort((a, b) => a - b));
    expect(tries.at(-1)).toBeLessThanOrEqual(8000);
    vi.advanceTimersByTime(31_000);
    expect(states.at(-1)).toEqual({ kind: "stale", since: lostAt });
  });

  it("takes a silent connection for dead", () => {
    last().onopen?.(new Event("open"));
    for (let i = 0; i < 4; i++) {
      vi.advanceTimersByTime(15_000);
      last().say("tick", "{}");
    }
    expect(kinds()).toEqual(["live"]);
    vi.advanceTimersByTime(47_000);
    expect(kinds().at(-1)).not.toBe("live");
    expect(sources[0]!.closed).toBe(true);
    expect(sources.length).toBeGreaterThan(1);
  });

  it("is patient with installations that tick seldom", () => {
    last().onopen?.(new Event("open"));
    for (let i = 0; i < 3; i++) {
      last().say("tick", "{}");
      vi.advanceTimersByTime(40_000);
    }
    last().say("tick", "{}");
    vi.advanceTimersByTime(100_000);
    expect(kinds()).toEqual(["live"]);
  });

  it("hears nothing from a source that it gave up", () => {
    last().onopen?.(new Event("open"));
    const old = last();
    old.onerror?.(new Event("error"));
    old.say("tick", "{}");
    old.onopen?.(new Event("open"));
    expect(events).toEqual([]);
    expect(connects).toBe(1);
  });

  it("lets go when told so, and comes back", () => {
    last().onopen?.(new Event("open"));
    stream.pause();
    expect(last().closed).toBe(true);
    vi.advanceTimersByTime(60_000);
    expect(sources).toHaveLength(1);
    stream.nudge();
    expect(sources).toHaveLength(2);
    last().onopen?.(new Event("open"));
    expect(states.at(-1)?.kind).toBe("live");
  });
});
