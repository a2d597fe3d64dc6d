import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import type { LogRecord } from "../api/types";
import { logsHref } from "../lib/log-filter";
import { rfc3339 } from "../lib/time-span";
import { fieldsOf, lineKey, originOf } from "../lib/log-lines";
import { canName } from "../lib/log-query";
import { levelOf } from "../lib/severity";
import { sitePath } from "../lib/site";
import { formatAbsolute, formatDayClock, parseTime } from "../lib/time";
import { Icon } from "./icon";
import { SeverityMark } from "./severity";

const ROW = 26;
/** The list counts as scrolled away from its top from here on. */
const AWAY = 24;
const AROUND_MS = 2 * 60_000;

interface Props {
  lines: readonly LogRecord[];
  /** Narrows the search to, or away from, a field's value. */
  onFilter: (field: string, value: string, not: boolean) => void;
  /** Told when the reader leaves the newest lines, or comes back to them. */
  onAway?: (away: boolean) => void;
  /** After the last line. */
  children?: ReactNode;
  /** Changes when the list is another one: it begins at its top again. */
  id: string;
  /** All lines come from one place, which need not be told at each. */
  plain?: boolean;
}

/** Log lines, newest first; only those in sight are in the page. */
export function LogList({ lines, onFilter, onAway, children, id, plain }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [active, setActive] = useState(0);
  const away = useRef(false);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
    getItemKey: (i) => lineKey(lines[i]!),
  });
  const reset = useRef(id);
  useEffect(() => {
    if (reset.current === id) return;
    reset.current = id;
    box.current?.scrollTo({ top: 0 });
    setActive(0);
    setOpen(new Set());
  }, [id]);
  const toggle = useCallback((key: string) => {
    setOpen((o) => {
      const next = new Set(o);
      if (!next.delete(key)) next.add(key);
      return next;
    });
  }, []);
  const onScroll = () => {
    const now = (box.current?.scrollTop ?? 0) > AWAY;
    if (now === away.current) return;
    away.current = now;
    onAway?.(now);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const row = (e.target as Element).closest<HTMLElement>(".log-row");
    if (!row) return;
    const at = Number(row.dataset.index);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const target = Math.min(Math.max(to, 0), lines.length - 1);
    setActive(target);
    rows.scrollToIndex(target);
    const focus = (tries: number) => {
      const el = box.current?.querySelector<HTMLElement>(`.log-row[data-index="${target}"]`);
      if (el) el.focus({ preventScroll: true });
      else if (tries > 0) requestAnimationFrame(() => focus(tries - 1));
    };
    focus(10);
  };
  const items = rows.getVirtualItems();
  // One row at a time is in the tab order, and it must be one that is there.
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  const stop = Math.min(Math.max(active, first), last);
  return (
    <div ref={box} className={plain ? "log-list plain" : "log-list"} onScroll={onScroll} onKeyDown={onKeyDown} data-testid="log-list">
      <div role="list" aria-label="Log lines, newest first" style={{ position: "relative", height: rows.getTotalSize() }}>
        {items.map((v) => {
          const r = lines[v.index]!;
          const key = String(v.key);
          return (
            <div key={v.key} ref={rows.measureElement} data-index={v.index} role="listitem" aria-setsize={lines.length} aria-posinset={v.index + 1} className="log-item"
              style={{ transform: `translateY(${v.start}px)` }}>
              <Line record={r} index={v.index} open={open.has(key)} stop={v.index === stop} onToggle={toggle} onFocus={setActive} />
              {open.has(key) && <Fields record={r} onFilter={onFilter} />}
            </div>
          );
        })}
      </div>
      {children}
    </div>
  );
}

const Line = memo(function Line({ record: r, index, open, stop, onToggle, onFocus }: {
  record: LogRecord; index: number; open: boolean; stop: boolean; onToggle: (key: string) => void; onFocus: (i: number) => void;
}) {
  const t = parseTime(r.timestamp);
  return (
    <button type="button" className="log-row" data-index={index} data-level={levelOf(r.severity)} data-line={lineKey(r)} aria-expanded={open} tabIndex={stop ? 0 : -1}
      onFocus={() => onFocus(index)} onClick={() => onToggle(lineKey(r))}>
      <time dateTime={r.timestamp} title={t === undefined ? r.timestamp : formatAbsolute(t)}>
        {t === undefined ? r.timestamp : formatDayClock(t)}
      </time>
      <span className="log-severity">
        <SeverityMark severity={r.severity} size={10} />
        {r.severity || <span className="visually-hidden">no severity</span>}
      </span>
      <span className="log-site truncate">{r.site}</span>
      <span className="log-origin truncate">{originOf(r)}</span>
      <span className="log-message">{r.message || <i>empty</i>}</span>
    </button>
  );
});

function Fields({ record: r, onFilter }: { record: LogRecord; onFilter: (field: string, value: string, not: boolean) => void }) {
  const t = parseTime(r.timestamp);
  const around = t === undefined ? undefined : { from: rfc3339(Math.floor((t - AROUND_MS) / 1000) * 1000), to: rfc3339(Math.ceil((t + AROUND_MS) / 1000) * 1000) };
  return (
    <div className="log-fields">
      <pre tabIndex={0} aria-label="The whole message">{r.message}</pre>
      <div className="row wrap small">
        <Link href={sitePath({ tenant: r.tenant, name: r.site })}>Site {r.site}</Link>
        {around && (
          <>
            {r.pod && <Link href={logsHref({ tenant: r.tenant, site: r.site, query: `pod:"${r.pod.replace(/["\\]/g, "\\$&")}"`, ...around })}>The pod's lines around it</Link>}
            <Link href={logsHref({ tenant: r.tenant, site: r.site, ...around })}>The site's lines around it</Link>
          </>
        )}
      </div>
      <table>
        <caption className="visually-hidden">Fields of the line</caption>
        <tbody>
          <tr>
            <th scope="row">time</th>
            <td className="mono" colSpan={2}>
              {r.timestamp}
            </td>
          </tr>
          {fieldsOf(r).map(([k, v]) => (
            <tr key={k}>
              <th scope="row">{k}</th>
              <td className="mono">{v}</td>
              <td className="log-tools">
                {canName(k) && (
                  <>
                    <button type="button" className="button quiet icon" title={`Filter for ${k} ${v}`} aria-label={`Filter for this value: ${k} ${v}`} onClick={() => onFilter(k, v, false)}>
                      <Icon d="M3 8h10M8 3v10" />
                    </button>
                    <button type="button" className="button quiet icon" title={`Leave out ${k} ${v}`} aria-label={`Leave out this value: ${k} ${v}`} onClick={() => onFilter(k, v, true)}>
                      <Icon d="M3 8h10" />
                    </button>
                  </>
                )}
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">id</th>
            <td className="mono" colSpan={2}>
              {r.id}
            </td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}
