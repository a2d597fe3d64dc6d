// One function for every call to the console's HTTP API. It turns whatever goes
// wrong into a Problem, so that pages can say what happened and what to do.

export interface ProblemBody {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  instance?: string;
  /** The tenants that have a site of the wanted name. */
  tenants?: string[];
  /** What is wrong with each field of the request. */
  errors?: { field: string; detail: string }[];
}

/** A failed call: RFC 9457 as the server sent it; status 0 when nothing came back. */
export class Problem extends Error {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly instance: string;
  readonly tenants: string[];
  readonly errors: readonly { field: string; detail: string }[];

  constructor(status: number, body: ProblemBody) {
    const title = body.title || (status === 0 ? "No answer" : `Error ${status}`);
    super(body.detail ? `${title}: ${body.detail}` : title);
    this.name = "Problem";
    this.status = status;
    this.title = title;
    this.detail = body.detail ?? "";
    this.instance = body.instance ?? "";
    this.tenants = body.tenants ?? [];
    this.errors = body.errors ?? [];
  }

  /** What the server says of one field, or "". */
  fieldFault(field: string): string {
    return this.errors
      .filter((e) => e.field === field || e.field.startsWith(`${field}[`))
      .map((e) => e.detail)
      .join("; ");
  }
}

/** Whether the same call may succeed a moment later. */
export function isTransient(e: unknown): boolean {
  return e instanceof Problem && (e.status === 0 || e.status === 429 || e.status >= 500);
}

type Params = Record<string, string | number | undefined>;

interface Call {
  params?: Params;
  body?: unknown;
  signal?: AbortSignal;
}

let unauthorized: () => void = () => {};

/** Sets what happens when the server no longer knows the session. */
export function onUnauthorized(f: () => void): void {
  unauthorized = f;
}

/** Whether the server knows the session; also when it can't be asked, for then nothing has ended. */
export async function sessionLives(): Promise<boolean> {
  try {
    return (await fetch("/api/v1/session", { credentials: "same-origin", cache: "no-store" })).status !== 401;
  } catch {
    return true;
  }
}

let skewMs = 0;

/** The server's time in ms, as far as known: ages must not depend on the laptop's clock. */
export function serverNow(): number {
  return Date.now() + skewMs;
}

/** Learns the difference between the clocks from a Date header; small ones are noise. */
export function learnSkew(date: string | null, receivedAt: number): void {
  const t = date ? Date.parse(date) : NaN;
  if (Number.isNaN(t)) return;
  const d = t - receivedAt;
  skewMs = Math.abs(d) > 5000 ? d : 0;
}

export function withParams(path: string, params?: Params): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params ?? {})) {
    if (v !== undefined && v !== "") q.set(k, String(v));
  }
  const s = q.toString();
  return s ? `${path}?${s}` : path;
}

/** Calls the API and returns its JSON (undefined for 204). Throws a Problem. */
export async function api<T>(method: string, path: string, call: Call = {}): Promise<T> {
  const init: RequestInit = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (call.signal) init.signal = call.signal;
  if (call.body !== undefined) {
    init.body = JSON.stringify(call.body);
    init.headers = { ...init.headers, "Content-Type": "application/json" };
  }
  let res: Response;
  try {
    res = await fetch(withParams(path, call.params), init);
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new Problem(0, { detail: "The console's server can't be reached. Check the network, and that the console role runs." });
  }
  learnSkew(res.headers.get("Date"), Date.now());
  if (res.status === 204) return undefined as T;
  const isJSON = /json/.test(res.headers.get("Content-Type") ?? "");
  if (!res.ok) {
    if (res.status === 401 && !(method === "POST" && path === "/api/v1/session")) unauthorized();
    throw await problemOf(res);
  }
  if (!isJSON) {
    throw new Problem(502, { title: "Unexpected answer", detail: `${path} did not answer with JSON; is there a proxy in between?` });
  }
  try {
    return (await res.json()) as T;
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new Problem(0, { title: "Broken answer", detail: `The answer of ${path} was cut off or is not JSON.` });
  }
}

/** The problem that a failed answer carries. */
export async function problemOf(res: Response): Promise<Problem> {
  return new Problem(res.status, /json/.test(res.headers.get("Content-Type") ?? "") ? await problemBody(res) : { title: res.statusText });
}

/** What api does when the session has ended; for calls that don't go through it. */
export const sessionEnded = (): void => unauthorized();

async function problemBody(res: Response): Promise<ProblemBody> {
  try {
    const b: unknown = await res.json();
    if (b && typeof b === "object") {
      // Cortex and Prometheus say {status: "error", error: "…"}.
      const p = b as ProblemBody & { error?: string };
      if (p.detail === undefined && typeof p.error === "string") return { detail: p.error };
      return p;
    }
  } catch {
    // The status alone has to do.
  }
  return { title: res.statusText };
}
