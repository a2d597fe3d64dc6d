import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { useAlertState } from "../api/alert-queries";
import { useRegistrations } from "../api/queries";
import { formatCount, plural } from "../lib/format";
import { DAILY, isAt, MANAGE } from "../lib/nav";
import { Icon } from "./icon";

/**
 * The menu. In a wide window the daily pages stand in the bar and the others open below
 * Manage; in a narrow one a button opens them all (styles/shell.css). Both are lists of
 * links behind a button that says whether it is open: Tab and Enter walk them.
 */
export function MainNav() {
  const [location] = useLocation();
  const [open, setOpen] = useState<"" | "all" | "manage">("");
  const nav = useRef<HTMLElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open) return;
    const leave = (e: Event) => {
      if (e.target instanceof Node && !nav.current?.contains(e.target)) setOpen("");
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("focusin", leave);
    };
  }, [open]);
  const badges = useBadges();
  const toggle = (what: "all" | "manage") => ({
    type: "button" as const,
    "aria-expanded": open === what,
    onClick: (e: { currentTarget: HTMLButtonElement }) => {
      opener.current = e.currentTarget;
      setOpen(open === what ? "" : what);
    },
  });
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key !== "Escape" || !open) return;
    setOpen("");
    opener.current?.focus();
  };
  const item = ([href, text]: readonly [string, string]) => (
    <li key={href}>
      <Link href={href} onClick={() => setOpen("")} {...(isAt(location, href) ? { "aria-current": "page" as const } : {})}>
        {text}
        {badges[href]}
      </Link>
    </li>
  );
  const managing = MANAGE.find(([href]) => isAt(location, href));
  return (
    <nav aria-label="Main" ref={nav} onKeyDown={onKeyDown}>
      <button {...toggle("all")} className="nav-menu" aria-controls={id}>
        <Icon d="M2.5 4h11M2.5 8h11M2.5 12h11" />
        Menu
        {badges["/alerts"]}
      </button>
      <ul id={id} className={open === "all" ? "nav-items open" : "nav-items"}>
        {DAILY.map(item)}
        <li className="nav-group">
          <button {...toggle("manage")} className={managing ? "here" : undefined} aria-controls={`${id}-manage`}>
            Manage
            {badges["/registrations"]}
            <Icon d="M4.5 6.5 8 10l3.5-3.5" />
          </button>
          <span className="nav-heading" aria-hidden>
            Manage
          </span>
          <ul id={`${id}-manage`} aria-label="Manage" className={open === "manage" ? "open" : undefined}>
            {MANAGE.map(item)}
          </ul>
        </li>
      </ul>
    </nav>
  );
}

/** What waits on a page, by its address. */
function useBadges(): Record<string, ReactNode> {
  const { data: pending } = useRegistrations();
  const { data, error } = useAlertState();
  const { critical = 0, warning = 0 } = (!error && data?.firing) || {};
  return {
    "/alerts": critical + warning > 0 && (
      <span className={critical > 0 ? "badge critical" : "badge"} title={`${plural(critical, "critical alert")} and ${plural(warning, "warning")}`}>
        {formatCount(critical + warning)}
        <span className="visually-hidden"> critical and warning alerts</span>
      </span>
    ),
    "/registrations": pending && pending.length > 0 && (
      <span className="badge">
        {formatCount(pending.length)}
        <span className="visually-hidden"> waiting</span>
      </span>
    ),
  };
}
