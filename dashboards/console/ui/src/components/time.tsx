import { useEffect } from "react";
import { serverNow } from "../api/client";
import { Store, useStore } from "../lib/store";
import { formatAbsolute, formatDuration, formatRelative, parseTime } from "../lib/time";

// One clock for all relative times of the page.
const now = new Store(serverNow());
let users = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** The server's time in ms, refreshed every 5 s. */
export function useNow(): number {
  useEffect(() => {
    if (users++ === 0) {
      now.set(serverNow());
      timer = setInterval(() => now.set(serverNow()), 5000);
    }
    return () => {
      if (--users === 0) clearInterval(timer);
    };
  }, []);
  return useStore(now);
}

/** A time as "3m ago", with the whole of it on hover. */
export function Ago({ time, none = "never" }: { time: string | number | null | undefined; none?: string }) {
  const current = useNow();
  const t = typeof time === "number" ? time : parseTime(time);
  if (t === undefined) return <>{none}</>;
  return (
    <time dateTime={new Date(t).toISOString()} title={formatAbsolute(t)} className="nowrap">
      {formatRelative(t, Math.max(current, serverNow()))}
    </time>
  );
}

/** How long something has lasted: "for 3 h", with its start on hover. Nothing without a start. */
export function For({ since, before = "" }: { since: string | null | undefined; before?: string }) {
  const current = useNow();
  const t = parseTime(since);
  if (t === undefined) return null;
  return (
    <>
      {before}
      <time dateTime={new Date(t).toISOString()} title={`since ${formatAbsolute(t)}`} className="nowrap">
        for {formatDuration(Math.max(0, (Math.max(current, serverNow()) - t) / 1000))}
      </time>
    </>
  );
}
