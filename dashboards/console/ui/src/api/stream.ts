// The live connection: server-sent events with our own reconnecting. The browser's
// own gives up for good on any HTTP error, and never notices a silent connection.

export type LiveState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Lost a moment ago; what is shown was true at since (ms). */
  | { kind: "reconnecting"; since: number }
  /** Lost for longer than anybody should trust the page. */
  | { kind: "stale"; since: number };

/** The part of EventSource that is used. */
export interface Source {
  onopen: ((e: Event) => void) | null;
  onerror: ((e: Event) => void) | null;
  addEventListener(type: string, f: (e: MessageEvent<string>) => void): void;
  close(): void;
}

export interface LiveOptions {
  open: () => Source;
  /** Called for each event with its parsed data. */
  onEvent: (type: string, data: unknown) => void;
  /** Called after each connect: what happened meanwhile must be read anew. */
  onConnect: () => void;
  /** Called when the connection failed, before the next try. */
  onLost?: () => void;
  onState: (s: LiveState) => void;
  now?: () => number;
  random?: () => number;
}

export const EVENT_TYPES = ["sites", "virtualsites", "removed", "tick"] as const;

/** A stream that says nothing for this long is dead: ticks come every 15 s. */
const SILENT_MS = 45_000;
/** After this long without a connection the page counts as stale. */
const STALE_MS = 30_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;
const CHECK_MS = 1000;

export class LiveStream {
  private readonly o: Required<Omit<LiveOptions, "onLost">> & Pick<LiveOptions, "onLost">;
  private source: Source | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private check: ReturnType<typeof setInterval> | undefined;
  private attempt = 0;
  private lastHeard = 0;
  private tickAt = 0;
  private tickMs = 15_000;
  private lostAt: number | null = null;
  private state: LiveState = { kind: "connecting" };

  constructor(o: LiveOptions) {
    this.o = { now: Date.now, random: Math.random, ...o };
  }

  start(): void {
    this.lastHeard = this.o.now();
    this.check = setInterval(() => this.watch(), CHECK_MS);
    this.connect();
  }

  stop(): void {
    clearInterval(this.check);
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  /**
   * Lets go of the connection while nobody looks: without HTTP/2, a browser has six
   * connections to a server for all its tabs.
   */
  pause(): void {
    clearTimeout(this.retry);
    if (this.source) this.lostAt ??= this.lastHeard;
    this.source?.close();
    this.source = null;
  }

  /** Tries at once: the page became visible, or the network came back. */
  nudge(): void {
    if (!this.source) this.connect();
    else this.watch();
  }

  private connect(): void {
    clearTimeout(this.retry);
    this.source?.close();
    const source = this.o.open();
    this.source = source;
    const opened = this.o.now();
    this.lastHeard = Math.max(this.lastHeard, opened); // grant it the time to answer
    source.onopen = () => {
      if (this.source !== source) return;
      this.attempt = 0;
      this.lastHeard = this.o.now();
      this.lostAt = null;
      this.set({ kind: "live" });
      this.o.onConnect();
    };
    source.onerror = () => {
      if (this.source === source) this.lost();
    };
    for (const type of EVENT_TYPES) {
      source.addEventListener(type, (e) => {
        if (this.source !== source) return;
        this.heard(type);
        let data: unknown;
        try {
          data = JSON.parse(e.data);
        } catch {
          return; // a cut-off event; the next list has what it said
        }
        this.o.onEvent(type, data);
      });
    }
  }

  private heard(type: string): void {
    const now = this.o.now();
    this.lastHeard = now;
    if (type !== "tick") return;
    // Installations may evaluate more seldom than every 15 s.
    if (this.tickAt > 0) this.tickMs = Math.min(Math.max(now - this.tickAt, 1000), 10 * 60_000);
    this.tickAt = now;
  }

  private lost(): void {
    this.source?.close();
    this.source = null;
    this.lostAt ??= this.lastHeard;
    this.tickAt = 0;
    this.o.onLost?.();
    // Full jitter: many browsers must not come back in step.
    const wait = MIN_BACKOFF_MS + this.o.random() * Math.min(MAX_BACKOFF_MS, 1000 * 2 ** this.attempt);
    this.attempt++;
    this.retry = setTimeout(() => this.connect(), wait);
    this.watch();
  }

  private watch(): void {
    const now = this.o.now();
    if (this.source && this.state.kind === "live" && now - this.lastHeard > Math.max(SILENT_MS, 3 * this.tickMs)) {
      this.lost();
      return;
    }
    if (this.lostAt === null) return;
    this.set({ kind: now - this.lostAt > STALE_MS ? "stale" : "reconnecting", since: this.lostAt });
  }

  private set(s: LiveState): void {
    const same = s.kind === this.state.kind && ("since" in s ? s.since : 0) === ("since" in this.state ? this.state.since : 0);
    if (same) return;
    this.state = s;
    this.o.onState(s);
  }
}
