import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useId, useLayoutEffect, useMemo, useState } from "react";
import { useLocation } from "wouter";
import { api } from "../api/client";
import { keys } from "../api/keys";
import { useVirtualSites } from "../api/queries";
import type { SitePage } from "../api/types";
import { DAILY, MANAGE } from "../lib/nav";
import { sitePath } from "../lib/site";
import { setTheme, theme } from "../lib/theme";
import { setZone, zone } from "../lib/zone";
import { useTyped } from "./filters";
import { Dialog } from "./dialog";

interface Entry {
  id: string;
  text: string;
  note: string;
  go: () => void;
}

const WITHIN: Record<string, readonly (readonly [string, string])[]> = {
  "/workloads": [["/workloads/deploy", "Deploy a workload"]],
  "/alerts": [["/alerts?tab=groups", "Alerts by route"], ["/alerts?tab=silences", "Silences"], ["/alerts?tab=loudest", "Loudest rules"]],
};
// Every page of the menu, and what stands on one of them.
const PAGES: readonly (readonly [string, string])[] = [
  ...DAILY.flatMap<readonly [string, string]>((p) => [p, ...(WITHIN[p[0]] ?? [])]),
  ...MANAGE,
];
const SITES = 8;
const SHOWN = 14;

const typing = (e: EventTarget | null) => e instanceof HTMLElement && (e.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName));

/** Ctrl-K or Cmd-K opens it on every page; / goes to the page's search, or here where it has none. */
export function Palette() {
  const [open, setOpen] = useState(false);
  // Before anything is painted: who sees the page can use its keys.
  useLayoutEffect(() => {
    const onKey = (e: globalThis.KeyboardEvent) => {
      if (document.querySelector("dialog[open], [role=dialog]")) return;
      if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key.toLowerCase() === "k") {
        e.preventDefault();
        setOpen(true);
      } else if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !typing(e.target)) {
        e.preventDefault();
        const field = document.querySelector<HTMLElement>("main [role=search] input, main [role=search] textarea, main input[type=search], main [role=combobox]");
        if (field) field.focus();
        else setOpen(true);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  return open ? <Opened onClose={() => setOpen(false)} /> : null;
}

function Opened({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation();
  const [asked, setAsked] = useState("");
  const [text, setText] = useTyped(asked, setAsked);
  const [active, setActive] = useState(0);
  const id = useId();
  const virtual = useVirtualSites().data;
  // The server searches: nobody loads a fleet to find one site.
  const sites = useQuery({
    queryKey: keys.inventory(`palette ${asked}`),
    enabled: asked.trim() !== "",
    queryFn: async ({ signal }) => {
      const text = asked.trim();
      const ask = async (q: string) => (await api<SitePage>("GET", "/api/v1/sites", { params: { q, limit: SITES, sort: "name", columns: "colour" }, signal })).sites;
      // Those of that name before those that have the text anywhere, of which there may be many.
      const named = await ask(`name~${JSON.stringify(text)}`);
      const found = named.length < SITES ? await ask(JSON.stringify(text)) : [];
      const known = new Set(named.map((s) => `${s.tenant}/${s.name}`));
      return [...named, ...found.filter((s) => !known.has(`${s.tenant}/${s.name}`))].slice(0, SITES);
    },
    retry: false,
  });
  const entries = useMemo<Entry[]>(() => {
    const want = text.trim().toLowerCase();
    const fits = (s: string) => s.toLowerCase().includes(want);
    const to = (href: string) => () => navigate(href);
    const pages = PAGES.filter(([, name]) => fits(name)).map(([href, name]) => ({ id: href, text: name, note: "page", go: to(href) }));
    const actions: Entry[] = [
      { id: "dark", text: "Dark theme", note: "action", go: () => setTheme("dark") }, { id: "light", text: "Light theme", note: "action", go: () => setTheme("light") },
      { id: "zone", text: zone.get() === "UTC" ? "Times in this browser's zone" : "Times in UTC", note: "action", go: () => setZone(zone.get() === "UTC" ? "local" : "UTC") },
    ].filter((a) => fits(a.text) && a.id !== theme.get());
    if (!want) return [...pages, ...actions];
    const found = (sites.data ?? []).map((s) => ({ id: `${s.tenant}/${s.name}`, text: s.name, note: `site of ${s.tenant}`, go: to(sitePath({ tenant: s.tenant, name: s.name })) }));
    const groups = [...(virtual?.values() ?? [])].filter((v) => fits(`${v.namespace}/${v.name}`)).slice(0, 5).map((v) => ({ id: `vs ${v.tenant}/${v.namespace}/${v.name}`, text: `${v.namespace}/${v.name}`, note: `virtual site of ${v.tenant}`, go: to(`/virtual-sites/${encodeURIComponent(v.namespace)}/${encodeURIComponent(v.name)}?tenant=${encodeURIComponent(v.tenant)}`) }));
    return [...found, ...groups, ...pages, ...actions].slice(0, SHOWN);
  }, [text, sites.data, virtual, navigate]);
  const at = Math.min(active, entries.length - 1);
  const take = (e: Entry | undefined) => {
    if (!e) return;
    onClose();
    e.go();
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      setActive(entries.length === 0 ? 0 : (at + (e.key === "ArrowDown" ? 1 : entries.length - 1)) % entries.length);
    } else if (e.key === "Enter") {
      e.preventDefault();
      take(entries[at]);
    }
  };
  return (
    <Dialog title="Go to" onClose={onClose} onSubmit={() => take(entries[at])} actions={null}>
      <div className="palette">
        <input className="input" type="text" role="combobox" aria-label="Site, virtual site, page or action" aria-expanded aria-controls={`${id}-list`} aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined} aria-autocomplete="list" autoComplete="off" spellCheck={false} maxLength={100} autoFocus
          placeholder="Site, virtual site, page or action" value={text}
          onChange={(e) => {
            setText(e.target.value);
            setActive(0);
          }}
          onKeyDown={onKeyDown} />
        <ul id={`${id}-list`} role="listbox" aria-label="Results">
          {entries.map((e, i) => (
            <li key={e.id} id={`${id}-${i}`} role="option" aria-selected={i === at} onClick={() => take(e)}>
              <span className="truncate">{e.text}</span> <span className="muted small">{e.note}</span>
            </li>
          ))}
        </ul>
        <p className="muted small" role="status">
          {sites.error ? "Sites can't be searched now." : entries.length === 0 ? (sites.isFetching ? "Searching…" : "Nothing fits.") : ""}
        </p>
      </div>
    </Dialog>
  );
}
