// Keeps a stream of server-sent events open: connects, waits longer after each failure,
// notices a connection that has gone silent, goes on where it was, and can be let go for
// a while. Whoever uses it says what the events mean.

import { Problem } from "./client";
import { readSSE, type SSECall } from "./sse";

export type LinkState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Lost; tried again by itself. heardAt (ms) is the last sign of life. */
  | { kind: "reconnecting"; error: Problem | null; heardAt: number }
  /** Let go; resume() or nudge() goes on. */
  | { kind: "held"; heardAt: number }
  /** Refused for good. */
  | { kind: "failed"; error: Problem };

export interface LinkOptions {
  url: string;
  /** Whether to go on after the last event (Last-Event-ID); else each connection begins anew. */
  resumes: boolean;
  onState: (s: LinkState) => void;
  /** Connected. Unless resumed, what was before must be read otherwise. */
  onOpen: (resumed: boolean) => void;
  /** Called for each event with its parsed data. */
  onEvent: (type: string, data: unknown) => void;
  /** How long the stream may say nothing, in ms. */
  patience?: () => number;
  /** Whether a refusal is for good. */
  isFinal?: (p: Problem) => boolean;
  read?: (url: string, call: SSECall) => Promise<void>;
  random?: () => number;
  now?: () => number;
}

/** A stream that says nothing for this long is dead: something comes every 15 s. */
export const SILENT_MS = 45_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;

/** The request is wrong or not allowed; asking again changes nothing. */
const blamesRequest = (p: Problem) => p.status >= 400 && p.status < 500 && p.status !== 429;

export class Link {
  private readonly o: Required<LinkOptions>;
  private abort: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  private id = "";
  private heardAt = 0;
  private state: LinkState["kind"] | "new" | "over" = "new";

  constructor(o: LinkOptions) {
    this.o = { read: readSSE, random: Math.random, now: Date.now, patience: () => SILENT_MS, isFinal: blamesRequest, ...o };
  }

  start(): void {
    this.heardAt = this.o.now();
    this.set({ kind: "connecting" });
    void this.connect();
  }

  stop(): void {
    this.drop();
    this.state = "over";
  }

  /** Lets go of the connection. */
  hold(): void {
    if (this.state === "over" || this.state === "failed" || this.state === "held") return;
    this.drop();
    this.set({ kind: "held", heardAt: this.heardAt });
  }

  resume(): void {
    if (this.state !== "held") return;
    this.attempt = 0;
    this.set({ kind: "connecting" });
    void this.connect();
  }

  /** Makes sure at once that the connection lives: the page became visible, or the network came back. */
  nudge(): void {
    if (this.state === "held") this.resume();
    else if (this.state === "reconnecting") void this.connect();
    else if (this.state === "live" && this.o.now() - this.heardAt > this.o.patience()) {
      this.drop();
      this.lost(null);
    }
  }

  private set(s: LinkState): void {
    this.state = s.kind;
    this.o.onState(s);
  }

  private drop(): void {
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.abort?.abort();
    this.abort = null;
  }

  private async connect(): Promise<void> {
    this.drop();
    const abort = new AbortController();
    this.abort = abort;
    const resumed = this.id !== "";
    let silent = false;
    const listen = () => {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => {
        silent = true;
        abort.abort();
      }, this.o.patience());
    };
    const heard = () => {
      this.heardAt = this.o.now();
      listen();
    };
    listen();
    let error: Problem | null = null;
    try {
      await this.o.read(this.o.url, {
        lastEventId: this.id,
        signal: abort.signal,
        onHeard: heard,
        onOpen: () => {
          if (this.abort !== abort) return;
          heard();
          this.set({ kind: "live" });
          this.o.onOpen(resumed);
        },
        onId: (id) => {
          if (this.abort === abort && this.o.resumes) this.id = id;
        },
        onEvent: (e) => {
          if (this.abort !== abort) return;
          this.attempt = 0;
          if (this.o.resumes) this.id = e.id;
          let data: unknown;
          try {
            data = JSON.parse(e.data);
          } catch {
            return; // cut off
          }
          this.o.onEvent(e.type, data);
        },
      });
    } catch (e) {
      if (abort.signal.aborted && !silent) return; // held or stopped
      error = e instanceof Problem ? e : silent ? null : new Problem(0, { detail: String(e) });
    }
    if (this.abort === abort) this.lost(error);
  }

  private lost(error: Problem | null): void {
    clearTimeout(this.silence);
    this.abort = null;
    if (error?.fieldFault("Last-Event-ID") && this.id !== "") {
      this.id = ""; // a server that knows other ids; what is missed is read otherwise
    } else if (error && this.o.isFinal(error)) {
      this.set({ kind: "failed", error });
      return;
    }
    // Full jitter: many browsers must not come back in step.
    const wait = MIN_BACKOFF_MS + this.o.random() * Math.min(MAX_BACKOFF_MS, 1000 * 2 ** this.attempt);
    this.attempt++;
    this.set({ kind: "reconnecting", error, heardAt: this.heardAt });
    this.retry = setTimeout(() => void this.connect(), wait);
  }
}
