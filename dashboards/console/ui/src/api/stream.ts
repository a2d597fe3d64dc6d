// The live view of the fleet's health, and how far it can be trusted.

import { Link, type LinkOptions, SILENT_MS } from "./link";

export type LiveState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Lost a moment ago; what is shown was true at since (ms). */
  | { kind: "reconnecting"; since: number }
  /** Lost for longer than anybody should trust the page. */
  | { kind: "stale"; since: number };

export interface LiveOptions extends Pick<LinkOptions, "onEvent" | "read" | "random" | "now"> {
  url: string;
  /** Called after each connect: what happened meanwhile must be read anew. */
  onConnect: () => void;
  onState: (s: LiveState) => void;
}

/** After this long without a connection the page counts as stale. */
const STALE_MS = 30_000;

export class LiveStream {
  private readonly link: Link;
  private readonly now: () => number;
  private stale: ReturnType<typeof setTimeout> | undefined;
  private since: number | null = null;
  private tickAt = 0;
  private tickMs = 15_000;

  constructor({ onConnect, onState, onEvent, ...o }: LiveOptions) {
    this.now = o.now ?? Date.now;
    this.link = new Link({
      ...o,
      resumes: false, // the lists are read again after each connect
      isFinal: () => false, // rights may come back, and the page shows what it has
      // Installations may evaluate more seldom than every 15 s.
      patience: () => Math.max(SILENT_MS, 3 * this.tickMs),
      onOpen: onConnect,
      onEvent: (type, data) => {
        if (type === "tick") this.tick();
        onEvent(type, data);
      },
      onState: (s) => {
        if (s.kind === "live") {
          clearTimeout(this.stale);
          this.since = null;
          onState({ kind: "live" });
        } else if ((s.kind === "reconnecting" || s.kind === "held") && this.since === null) {
          const since = (this.since = s.heardAt);
          this.tickAt = 0;
          const left = since + STALE_MS - this.now();
          if (s.kind === "reconnecting" && left > 0) onState({ kind: "reconnecting", since });
          this.stale = setTimeout(() => onState({ kind: "stale", since }), Math.max(0, left));
        }
      },
    });
  }

  start(): void {
    this.link.start();
  }

  stop(): void {
    clearTimeout(this.stale);
    this.link.stop();
  }

  /**
   * Lets go of the connection while nobody looks: without HTTP/2, a browser has six
   * connections to a server for all its tabs.
   */
  pause(): void {
    this.link.hold();
  }

  /** Tries at once: the page became visible, or the network came back. */
  nudge(): void {
    this.link.nudge();
  }

  private tick(): void {
    const now = this.now();
    if (this.tickAt > 0) this.tickMs = Math.min(Math.max(now - this.tickAt, 1000), 10 * 60_000);
    this.tickAt = now;
  }
}
