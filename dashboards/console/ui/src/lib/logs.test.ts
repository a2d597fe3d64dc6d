import { describe, expect, it } from "vitest";
import type { LogRecord } from "../api/types";
import { barsOf, niceMax, spanOfBars } from "./histogram";
import { formatLogFilter, LOG_RANGES, logsHref, parseLogFilter, searchParams, tailParams } from "./log-filter";
import { fromTyped, rfc3339, spanOf, toTyped } from "./time-span";
import { compareNewest, fieldsOf, mergeLines, originOf } from "./log-lines";
import { addClause, canName, clauseOf, quoteValue } from "./log-query";
import { levelOf } from "./severity";

const line = (timestamp: string, id: string, o: Partial<LogRecord> = {}): LogRecord => ({
  timestamp, id, tenant: "acme", site: "paris-07", region: "eu-west", node: "n1", namespace: "shop", pod: "web-1", container: "app", unit: "", severity: "info", message: "hello", ...o,
});

describe("log filter", () => {
  it("goes to the address and back", () => {
    for (const s of ["", "range=15m", "query=a+AND+b&tenant=acme&virtualSite=shared%2Fall&site=paris-07&namespace=shop&severity=error%2Cwarning&range=7d", "from=2026-11-21T10%3A00%3A00Z&to=2026-11-21T11%3A00%3A00Z", "from=now-2h", "range=15m&live=1"]) {
      expect(formatLogFilter(parseLogFilter(s))).toBe(s);
    }
  });

  it("has one range: a named one beats from and to, and the default is named", () => {
    expect(parseLogFilter("range=6h&from=2026-01-01T00:00:00Z")).toMatchObject({ range: "6h", from: "" });
    expect(parseLogFilter("range=nonsense")).toMatchObject({ range: "1h", from: "", to: "" });
    expect(parseLogFilter("to=now-1h")).toMatchObject({ range: "", from: "", to: "now-1h" });
  });

  it("a live view has no end", () => {
    expect(parseLogFilter("live=1&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z")).toMatchObject({ live: true, range: "15m", from: "", to: "" });
  });

  it("asks the API for what is set only, and a tail for no range", () => {
    const f = parseLogFilter("query=+timeout+&site=a%2C+b,&severity=error,error&range=24h");
    expect(searchParams(f, "acme")).toEqual({ query: "timeout", tenant: "acme", virtualSite: "", site: "a,b", namespace: "", severity: "error", from: "now-24h", to: "" });
    expect(tailParams(f, "acme")).not.toHaveProperty("from");
    expect(searchParams(parseLogFilter("from=now-2h&to=now-1h"), "acme")).toMatchObject({ from: "now-2h", to: "now-1h" });
  });

  it("makes links with a custom range", () => {
    expect(logsHref({})).toBe("/logs");
    expect(logsHref({ site: "paris-07", from: "2026-11-21T10:00:00Z", to: "2026-11-21T10:20:00Z" })).toBe("/logs?site=paris-07&from=2026-11-21T10%3A00%3A00Z&to=2026-11-21T10%3A20%3A00Z");
  });

  it("knows what a range covers", () => {
    const now = Date.parse("2026-11-21T12:00:00Z");
    expect(spanOf(parseLogFilter("range=15m"), LOG_RANGES, now)).toEqual({ start: now - 900_000, end: now });
    expect(spanOf(parseLogFilter("from=2026-11-21T10:00:00Z"), LOG_RANGES, now)).toEqual({ start: now - 7200_000, end: now });
    expect(spanOf(parseLogFilter("from=now-2h"), LOG_RANGES, now)).toBeUndefined();
  });

  it("writes times for inputs and reads them back", () => {
    const t = Date.parse("2026-11-21T10:20:30Z");
    expect(fromTyped(toTyped(t))).toBe("2026-11-21T10:20:30Z");
    expect(fromTyped("")).toBe("");
    expect(fromTyped("nonsense")).toBe("");
    expect(fromTyped("2026-02-31 10:00")).toBe("");
    expect(fromTyped("2026-11-21 08:20 PM")).toBe("");
    expect(fromTyped(" 2026-11-21T10:20 ")).toBe(fromTyped("2026-11-21 10:20:00"));
    expect(toTyped(t)).toMatch(/^2026-11-2\d \d\d:20:30$/);
    expect(toTyped("now-1h")).toBe("");
    expect(rfc3339(t + 5)).toBe("2026-11-21T10:20:30.005Z");
  });
});

describe("log query", () => {
  it("quotes values that would mean something else", () => {
    expect(quoteValue("checkout-5d4f")).toBe("checkout-5d4f");
    for (const [v, want] of [["a b", '"a b"'], ["OR", '"OR"'], ["x*", '"x*"'], ["", '""'], ['say "hi" \\o', '"say \\"hi\\" \\\\o"'], ["-x", '"-x"'], ["a:b", '"a:b"'], ["Größe", '"Größe"']] as const) expect(quoteValue(v)).toBe(want);
    expect(clauseOf("labels.app.kubernetes.io/name", "web")).toBe("labels.app.kubernetes.io/name:web");
    expect(canName("labels.app.kubernetes.io/name")).toBe(true);
    expect(canName("labels.a b")).toBe(false);
  });

  it("narrows a query", () => {
    expect(addClause("", "pod", "web-1")).toBe("pod:web-1");
    expect(addClause(" timeout ", "pod", "web-1")).toBe("timeout AND pod:web-1");
    expect(addClause("", "pod", "web-1", true)).toBe("NOT pod:web-1");
  });

  it("keeps an OR together", () => {
    expect(addClause("a OR b", "pod", "web-1")).toBe("(a OR b) AND pod:web-1");
    expect(addClause("a || b", "pod", "web-1")).toBe("(a || b) AND pod:web-1");
    expect(addClause("(a OR b) AND c", "pod", "web-1")).toBe("(a OR b) AND c AND pod:web-1");
    expect(addClause('"this OR that"', "pod", "web-1")).toBe('"this OR that" AND pod:web-1');
    expect(addClause("ORDER", "pod", "web-1")).toBe("ORDER AND pod:web-1");
  });

  it("asks once for the same, and turns round what was asked", () => {
    expect(addClause("timeout AND pod:web-1", "pod", "web-1")).toBe("timeout AND pod:web-1");
    expect(addClause("timeout AND pod:web-1", "pod", "web-1", true)).toBe("timeout AND NOT pod:web-1");
    expect(addClause("NOT pod:web-1", "pod", "web-1")).toBe("pod:web-1");
  });
});

describe("log lines", () => {
  const a = line("2026-11-21T10:00:00.1Z", "a");
  const b = line("2026-11-21T10:00:00.100000001Z", "b");
  const c = line("2026-11-21T10:00:01Z", "c");

  it("are sorted to the nanosecond, newest first", () => {
    expect([a, c, b].sort(compareNewest).map((l) => l.id)).toEqual(["c", "b", "a"]);
    expect(compareNewest(line("2026-11-21T11:00:00.5+01:00", "x"), line("2026-11-21T10:00:00.4Z", "y"))).toBeLessThan(0);
  });

  it("are merged, each once, the newest kept", () => {
    expect(mergeLines([c, a], [line("2026-11-21T10:00:00.1Z", "a"), b]).map((l) => l.id)).toEqual(["c", "b", "a"]);
    expect(mergeLines([a], [b, c], 2).map((l) => l.id)).toEqual(["c", "b"]);
    // An id alone names nothing.
    expect(mergeLines([a], [line("2026-11-21T10:00:05Z", "a")])).toHaveLength(2);
  });

  it("say where they come from", () => {
    expect(originOf(a)).toBe("shop/web-1/app");
    expect(originOf(line("", "", { pod: "", namespace: "", container: "", unit: "sshd.service" }))).toBe("sshd.service");
    expect(originOf(line("", "", { pod: "", unit: "" }))).toBe("n1");
    expect(fieldsOf(line("", "", { labels: { b: "2", a: "1" }, region: "" })).map(([k]) => k)).toEqual(["site", "node", "namespace", "pod", "container", "severity", "labels.a", "labels.b"]);
  });

  it("have a level, in whatever words", () => {
    expect(["FATAL", "err", "Warning", "notice", "trace", "", "weird"].map(levelOf)).toEqual(["critical", "error", "warning", "info", "debug", undefined, undefined]);
  });
});

describe("histogram", () => {
  const bars = barsOf({ start: "2026-11-21T10:00:00Z", stepSeconds: 30, counts: [1, 0, 7] });
  const start = Date.parse("2026-11-21T10:00:00Z");

  it("gives bars their times", () => {
    expect(bars[2]).toEqual({ start: start + 60_000, end: start + 90_000, count: 7 });
    expect(barsOf({ start: "", stepSeconds: 30, counts: [1] })).toEqual([]);
    expect(barsOf({ start: "2026-11-21T10:00:00Z", stepSeconds: 0, counts: [1] })).toEqual([]);
  });

  it("covers what was marked, from either side", () => {
    expect(spanOfBars(bars, 2, 1)).toEqual({ start: start + 30_000, end: start + 90_000 });
    expect(spanOfBars(bars, 0, 0)).toEqual({ start, end: start + 30_000 });
    expect(spanOfBars(bars, 0, 9)).toBeUndefined();
  });

  it("has a round top", () => {
    expect([0, 1, 3, 11, 50, 51, 999].map(niceMax)).toEqual([1, 1, 5, 20, 50, 100, 1000]);
  });
});
