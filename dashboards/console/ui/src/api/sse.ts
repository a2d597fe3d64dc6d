// Server-sent events over fetch: unlike the browser's EventSource it can go on with
// a Last-Event-ID of our choice, and it says why a server refused.

import { Problem, problemOf, sessionEnded } from "./client";

export interface SSEEvent {
  type: string;
  data: string;
  /** The stream's position after this event. */
  id: string;
}

/** Parses text/event-stream as it comes in, in pieces cut anywhere. */
export class SSEParser {
  /** The id that the stream stands at; one without data moves it too. */
  lastEventId = "";
  private rest = "";
  private type = "";
  private id: string | null = null;
  private data: string[] = [];

  /** Takes the next piece and returns the events that it completes. */
  push(text: string): SSEEvent[] {
    const out: SSEEvent[] = [];
    this.rest += text;
    for (let end; (end = /\r\n|\n|\r(?!$)/.exec(this.rest)); ) {
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      this.line(line, out);
    }
    return out;
  }

  private line(line: string, out: SSEEvent[]): void {
    if (line === "") {
      if (this.id !== null) this.lastEventId = this.id;
      if (this.data.length > 0) out.push({ type: this.type || "message", data: this.data.join("\n"), id: this.lastEventId });
      this.type = "";
      this.id = null;
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.type = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id" && !value.includes("\0")) this.id = value;
  }
}

export interface SSECall {
  lastEventId: string;
  signal: AbortSignal;
  onOpen: () => void;
  /** Anything came in, a comment too. */
  onHeard: () => void;
  onEvent: (e: SSEEvent) => void;
  /** The position after all that has come in. */
  onId: (id: string) => void;
}

/** Reads a stream to its end. Throws a Problem when it can't be had, an AbortError when it is let go. */
export async function readSSE(url: string, call: SSECall): Promise<void> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (call.lastEventId) headers["Last-Event-ID"] = call.lastEventId;
  let res: Response;
  try {
    res = await fetch(url, { headers, credentials: "same-origin", cache: "no-store", signal: call.signal });
  } catch (e) {
    if (call.signal.aborted) throw e;
    throw new Problem(0, { detail: "The console's server can't be reached." });
  }
  if (!res.ok || !res.body) {
    if (res.status === 401) sessionEnded();
    throw await problemOf(res);
  }
  if (!/event-stream/.test(res.headers.get("Content-Type") ?? "")) {
    throw new Problem(502, { title: "Unexpected answer", detail: "The answer is no stream of events; is there a proxy in between?" });
  }
  call.onOpen();
  const parser = new SSEParser();
  parser.lastEventId = call.lastEventId;
  const decoder = new TextDecoder();
  const reader = res.body.getReader();
  for (;;) {
    let piece: ReadableStreamReadResult<Uint8Array>;
    try {
      piece = await reader.read();
    } catch (e) {
      if (call.signal.aborted) throw e;
      throw new Problem(0, { detail: "The connection was lost." });
    }
    if (piece.done) return;
    call.onHeard();
    for (const e of parser.push(decoder.decode(piece.value, { stream: true }))) {
      if (call.signal.aborted) return; // let go by what came before
      call.onEvent(e);
    }
    call.onId(parser.lastEventId);
  }
}
