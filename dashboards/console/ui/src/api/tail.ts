// A live tail of logs: connects, goes on where it was lost, and can be let go for a
// while. It keeps no lines itself.

import { Problem } from "./client";
import { readSSE, type SSECall } from "./sse";
import type { LogRecord, MissingRegion } from "./types";

export type TailState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Lost; tried again by itself. */
  | { kind: "reconnecting"; error: Problem | null }
  /** Let go; resume() goes on where it was. */
  | { kind: "held" }
  /** Refused for good: the question is wrong, or not allowed. */
  | { kind: "failed"; error: Problem };

export interface TailOptions {
  url: string;
  /** Oldest first. */
  onHits: (hits: LogRecord[]) => void;
  onMissing: (regions: MissingRegion[]) => void;
  onState: (s: TailState) => void;
  /** Connected; unless resumed, what was before must be searched for. */
  onOpen: (resumed: boolean) => void;
  read?: (url: string, call: SSECall) => Promise<void>;
  random?: () => number;
}

/** A stream that says nothing for this long is dead: a comment comes every 15 s. */
const SILENT_MS = 45_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;

export class LogTail {
  private readonly o: Required<TailOptions>;
  private abort: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  private id = "";
  private over = false;

  constructor(o: TailOptions) {
    this.o = { read: readSSE, random: Math.random, ...o };
  }

  start(): void {
    this.o.onState({ kind: "connecting" });
    void this.connect();
  }

  stop(): void {
    this.over = true;
    this.drop();
  }

  /** Lets go of the connection; nothing is lost, the server knows where it was. */
  hold(): void {
    if (this.over || !this.abort) return;
    this.drop();
    this.o.onState({ kind: "held" });
  }

  resume(): void {
    if (this.over || this.abort) return;
    this.attempt = 0;
    this.start();
  }

  private drop(): void {
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.abort?.abort();
    this.abort = null;
  }

  private async connect(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    const resumed = this.id !== "";
    let silent = false;
    const heard = () => {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => {
        silent = true;
        abort.abort();
      }, SILENT_MS);
    };
    heard();
    let error: Problem | null = null;
    try {
      await this.o.read(this.o.url, {
        lastEventId: this.id,
        signal: abort.signal,
        onHeard: heard,
        onOpen: () => {
          if (this.abort !== abort) return;
          heard();
          this.o.onState({ kind: "live" });
          this.o.onOpen(resumed);
        },
        onId: (id) => {
          if (this.abort === abort) this.id = id;
        },
        onEvent: (e) => {
          if (this.abort !== abort) return;
          this.attempt = 0;
          this.id = e.id;
          this.event(e.type, e.data);
        },
      });
    } catch (e) {
      if (abort.signal.aborted && !silent) return; // held or stopped
      error = e instanceof Problem ? e : silent ? null : new Problem(0, { detail: String(e) });
    }
    if (this.abort !== abort) return;
    this.lost(error);
  }

  private event(type: string, text: string): void {
    let data: unknown;
    try {
      data = JSON.parse(text);
    } catch {
      return; // cut off
    }
    if (!data || typeof data !== "object") return;
    if (type === "hits") this.o.onHits((data as { hits?: LogRecord[] }).hits ?? []);
    else if (type === "missing") this.o.onMissing((data as { missingRegions?: MissingRegion[] }).missingRegions ?? []);
  }

  private lost(error: Problem | null): void {
    clearTimeout(this.silence);
    if (error?.fieldFault("Last-Event-ID") && this.id !== "") {
      this.id = ""; // a server that knows other ids; what is missed is searched for
    } else if (error && error.status >= 400 && error.status < 500 && error.status !== 429) {
      this.abort = null;
      this.over = true;
      this.o.onState({ kind: "failed", error });
      return;
    }
    const wait = MIN_BACKOFF_MS + this.o.random() * Math.min(MAX_BACKOFF_MS, 1000 * 2 ** this.attempt);
    this.attempt++;
    this.o.onState({ kind: "reconnecting", error });
    this.retry = setTimeout(() => void this.connect(), wait);
  }
}
