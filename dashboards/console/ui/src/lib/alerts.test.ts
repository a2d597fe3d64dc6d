import { describe, expect, it } from "vitest";
import type { Alert, AlertGroup, MaintenanceWindow, Matcher } from "../api/types";
import { alertPath, alertsHref, formatAlertFilter, groupsHref, isShippedRunbook, parseAlertFilter, safeURL, silencesHref, summaryOf, suppressedText } from "./alert-filter";
import { commonLabels, groupKey, nameOf } from "./alert-group";
import { goDuration, parseDuration, wordsOfDuration } from "./duration";
import { checkMatcher, checkMatchers, formatMatcher, matcherOf, matchersOf, matching, operatorOf, tellingLabels } from "./matchers";
import { spansWithin } from "./spans";
import { checkSchedule, checkWindowDuration, sortWindows, windowName, windowState } from "./windows";

const alert = (labels: Record<string, string>): Alert => ({
  fingerprint: "8a1f6b7c2d3e4f50", name: labels.alertname ?? "", tenant: "acme", site: labels.site ?? "", region: "", virtualSites: [], severity: "warning", state: "active", silencedBy: [], inhibitedBy: [],
  startsAt: "2026-11-21T10:00:00Z", updatedAt: "2026-11-21T10:00:00Z", endsAt: null, labels, annotations: {}, generatorURL: "",
});
const m = (name: string, op: "=" | "!=" | "=~" | "!~", value: string): Matcher => matcherOf(name, op, value);

describe("alert filter", () => {
  it("goes to the address and back", () => {
    for (const s of ["", "tenant=acme&virtualSite=shared%2Fall&site=paris-07&severity=critical&state=suppressed&q=disk+full"]) expect(formatAlertFilter(parseAlertFilter(s))).toBe(s);
    expect(formatAlertFilter(parseAlertFilter("severity=pink&state=gone&x=1"))).toBe("");
  });

  it("makes links", () => {
    expect(alertsHref({ site: "paris-07" })).toBe("/alerts?site=paris-07");
    expect(alertPath({ fingerprint: "8a1f", tenant: "acme" })).toBe("/alerts/8a1f?tenant=acme");
    expect(groupsHref(parseAlertFilter("site=paris-07&severity=critical"))).toBe("/alerts?tab=groups&site=paris-07&severity=critical");
    expect(parseAlertFilter(groupsHref(parseAlertFilter("site=paris-07&q=disk+full")).split("?")[1]!)).toEqual(parseAlertFilter("site=paris-07&q=disk+full"));
    expect(silencesHref("acme", "expired")).toBe("/alerts?tab=silences&tenant=acme&silences=expired");
  });

  it("knows its own runbooks", () => {
    for (const url of ["/runbooks/SiteDown", "https://muster.example.com/runbooks/SiteDown"]) expect(isShippedRunbook(url, "SiteDown")).toBe(true);
    for (const url of ["https://example.com/wiki/runbooks/SiteDown", "https://example.com/SiteDown", "/runbooks/RegionDown", "javascript:/runbooks/SiteDown", undefined]) expect(isShippedRunbook(url, "SiteDown")).toBe(false);
  });
  it("links only to the web", () => {
    expect(safeURL("https://runbooks.example.com/x")).toBe("https://runbooks.example.com/x");
    for (const s of ["javascript:alert(1)", "data:text/html,x", "runbooks/x", "", undefined]) expect(safeURL(s)).toBe("");
  });

  it("says what is wrong and why it is quiet", () => {
    expect(summaryOf({ annotations: { description: "long", summary: "short" } })).toBe("short");
    expect(summaryOf({ annotations: {} })).toBe("");
    expect(suppressedText({ silencedBy: ["x"], inhibitedBy: ["y"] })).toBe("silenced, inhibited");
    expect(suppressedText({ silencedBy: [], inhibitedBy: [] })).toBe("suppressed");
  });
});

describe("matchers", () => {
  const disk = alert({ alertname: "DiskFull", site: "paris-07", tenant: "acme", severity: "critical", node: "n1" });
  const down = alert({ alertname: "SiteDown", site: "berlin-01", tenant: "acme", severity: "critical" });
  const fit = (...ms: Matcher[]) => matching([disk, down], ms)?.map((a) => a.name);

  it("fit as Alertmanager's do", () => {
    expect(fit(m("site", "=", "paris-07"))).toEqual(["DiskFull"]);
    expect(fit(m("site", "!=", "paris-07"))).toEqual(["SiteDown"]);
    expect(fit(m("site", "=~", "paris"))).toEqual([]); // anchored
    expect(fit(m("site", "=~", "paris-.*|berlin-.*"))).toEqual(["DiskFull", "SiteDown"]);
    expect(fit(m("site", "!~", "berlin-.*"))).toEqual(["DiskFull"]);
    expect(fit(m("node", "=", ""))).toEqual(["SiteDown"]); // not there is empty
    expect(fit(m("severity", "=", "critical"), m("node", "=", "n1"))).toEqual(["DiskFull"]);
    expect(fit(m("site", "=~", "("))).toBeUndefined();
  });

  it("are checked", () => {
    expect(checkMatcher(m("site", "=", "x"))).toBe("");
    for (const bad of [m("", "=", "x"), m("tenant", "=", "x"), m("a b", "=", "x"), m("site", "=~", "(")]) expect(checkMatcher(bad)).not.toBe("");
    expect(checkMatchers([])).not.toBe("");
    expect(checkMatchers([m("site", "=~", ".*")])).not.toBe(""); // would silence everything
    expect(checkMatchers([m("site", "!=", "x")])).not.toBe("");
    expect(checkMatchers([m("site", "!=", "x"), m("alertname", "=", "DiskFull")])).toBe("");
  });

  it("are written as Alertmanager writes them", () => {
    expect(formatMatcher(m("site", "!~", 'a"b'))).toBe('site!~"a\\"b"');
    for (const op of ["=", "!=", "=~", "!~"] as const) expect(operatorOf(matcherOf("a", op, ""))).toBe(op);
  });

  it("of an alert leave out what Muster adds", () => {
    expect(matchersOf(tellingLabels({ ...disk.labels, region: "eu", virtual_sites: "|a|" })).map((x) => x.name)).toEqual(["alertname", "site", "node"]);
  });

  describe("of a group", () => {
    const labelled = (site: string, more: Record<string, string>) => alert({ alertname: "SiteDown", site, tenant: "acme", severity: "critical", region: "eu", virtual_sites: "|shop|", ...more });
    const group = (labels: Record<string, string>, alerts: Alert[], total = alerts.length): AlertGroup => ({
      receiver: "ops", tenant: "acme", labels, total, counts: { critical: total, warning: 0, info: 0 }, suppressed: 0, startsAt: alerts[0]?.startsAt ?? "", newestAt: alerts[0]?.startsAt ?? "", alerts,
    });
    const elsewhere = labelled("ny-01", { region: "us" });
    const here = [labelled("paris-07", {}), labelled("berlin-01", {})];
    const written = (g: AlertGroup) => matchersOf(commonLabels(g)).map(formatMatcher);

    it("name it by the values that it is grouped by, and tell it from every other", () => {
      const names: [Record<string, string>, string][] = [
        [{ alertname: "SiteDown" }, "SiteDown"],
        [{ site: "paris-07", alertname: "SiteDown" }, "SiteDown, site=paris-07"],
        [{ virtual_sites: "|shop|shared/all|", region: "eu" }, "region=eu, virtual_sites=shop, shared/all"],
        [{}, "all alerts of the route"],
      ];
      for (const [labels, name] of names) expect(nameOf(group(labels, here))).toBe(name);
      expect(nameOf({ ...group({}, here), receiver: "" })).toBe("no route");
      const all = names.flatMap(([labels]) => [group(labels, here), { ...group(labels, here), tenant: "globex" }, { ...group(labels, here), receiver: "mail" }]);
      expect(new Set(all.map(groupKey)).size).toBe(all.length);
    });
    it("keep what it is grouped by, whole or cut, also where Muster adds it", () => {
      for (const total of [2, 60]) {
        const g = group({ alertname: "SiteDown", region: "eu" }, here, total);
        expect(written(g)).toEqual(['alertname="SiteDown"', 'region="eu"']);
        expect(matching([...here, elsewhere], matchersOf(commonLabels(g)))).toEqual(here);
      }
      expect(written(group({ region: "eu" }, here, 60))).toEqual(['region="eu"']);
      expect(written(group({ severity: "critical", virtual_sites: "|shop|" }, here, 60))).toEqual(['severity="critical"', 'virtual_sites="|shop|"']);
    });

    it("are about what all have in common, but for what Muster adds", () => {
      expect(written(group({ alertname: "SiteDown" }, [labelled("paris-07", { node: "n1" }), labelled("berlin-01", { node: "n1" })]))).toEqual(['alertname="SiteDown"', 'node="n1"']);
    });
  });
});

describe("durations", () => {
  it("are read", () => {
    expect(["90m", "1h30m", "2h0m0s", "1d", "1.5h", " 2h "].map(parseDuration)).toEqual([5400, 5400, 7200, 86_400, 5400, 7200]);
    for (const s of ["", "2", "h", "2 h", "-1h", "1h2"]) expect(parseDuration(s)).toBeUndefined();
  });
  it("are told", () => {
    expect([0, 5, 65, 5400, 7200, 86_400, 3 * 86_400 + 3600].map(wordsOfDuration)).toEqual(["0 s", "5 s", "1 min 5 s", "1 h 30 min", "2 h", "1 day", "3 days 1 h"]);
  });
  it("are written for Go, which knows no days", () => {
    expect([60, 5400, 7200, 86_400, 0].map(goDuration)).toEqual(["1m", "1h30m", "2h", "24h", "0s"]);
  });
});

describe("maintenance windows", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  const w = (name: string, start: string | null): MaintenanceWindow => ({ name, reason: "", start, schedule: start ? "" : "0 2 * * SUN", timeZone: "", duration: "2h0m0s" });

  it("are planned, open, over or recurring", () => {
    expect([w("a", "2026-11-21T13:00:00Z"), w("b", "2026-11-21T11:00:00Z"), w("c", "2026-11-21T10:00:00Z"), w("d", null)].map((x) => windowState(x, now))).toEqual(["planned", "open", "over", "recurring"]);
  });

  it("are listed as they matter", () => {
    expect(sortWindows([w("over", "2026-11-20T10:00:00Z"), w("cron", null), w("later", "2026-11-23T10:00:00Z"), w("soon", "2026-11-22T10:00:00Z"), w("open", "2026-11-21T11:00:00Z")], now).map((x) => x.name)).toEqual(["open", "soon", "later", "cron", "over"]);
  });

  it("get a name that no other has", () => {
    expect(windowName("Größere Updates, #1!", [])).toBe("gro-ere-updates-1");
    expect(windowName("updates", ["updates", "updates-2"])).toBe("updates-3");
    expect(windowName("???", [])).toBe("window");
  });

  it("are checked", () => {
    expect(checkSchedule("0 2 * * SUN")).toBe("");
    for (const s of ["", "0 2 * *", "@daily", "0 2 * * SUN 2026", "a;b 2 * * *"]) expect(checkSchedule(s)).not.toBe("");
    expect(["1m", "168h", "7d"].map(checkWindowDuration)).toEqual(["", "", ""]);
    for (const s of ["30s", "169h", "", "x"]) expect(checkWindowDuration(s)).not.toBe("");
  });
});

describe("history", () => {
  it("is cut to the time that is shown", () => {
    const spans = [
      { startsAt: "1970-01-01T00:00:08Z", endsAt: null },
      { startsAt: "1970-01-01T00:00:03Z", endsAt: "1970-01-01T00:00:05Z" },
      { startsAt: "1970-01-01T00:00:00Z", endsAt: "1970-01-01T00:00:02Z" },
    ];
    expect(spansWithin(spans, 4000, 10_000)).toEqual([{ start: 4000, end: 5000 }, { start: 8000, end: 10_000 }]);
  });
});
