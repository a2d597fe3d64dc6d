import { Store } from "./store";

export type Theme = "system" | "light" | "dark";

const KEY = "muster.theme";

function stored(): Theme {
  try {
    const t = localStorage.getItem(KEY);
    return t === "light" || t === "dark" ? t : "system";
  } catch {
    return "system"; // storage is blocked
  }
}

export const theme = new Store<Theme>(stored());

export function setTheme(t: Theme): void {
  if (t === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = t;
  try {
    if (t === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, t);
  } catch {
    // It lasts until the page is closed.
  }
  theme.set(t);
}

/** Calls f whenever the colours change, by the toggle or by the system. */
export function onThemeChange(f: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", f);
  const unsubscribe = theme.subscribe(f);
  return () => {
    media.removeEventListener("change", f);
    unsubscribe();
  };
}

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;
