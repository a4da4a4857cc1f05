/** Light or dark: the system's choice unless the user made one. Colours for canvases come from the
 *  same tokens as everything else. */
import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";
const KEY = "syntony-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<(theme: Theme) => void>();

function stored(): Theme | null {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}

const present = (): Theme => stored() ?? (system.matches ? "dark" : "light");

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = present();
  watchers.forEach((each) => each(present()));
}

export function toggleTheme(): void {
  try {
    localStorage.setItem(KEY, present() === "dark" ? "light" : "dark");
  } catch {
    // Without storage the system decides.
  }
  applyTheme();
}

system.addEventListener("change", applyTheme);

export function useTheme(): Theme {
  const [theme, setTheme] = useState(present());
  useEffect(() => {
    watchers.add(setTheme);
    return () => void watchers.delete(setTheme);
  }, []);
  return theme;
}

/** The value of a token, for a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
