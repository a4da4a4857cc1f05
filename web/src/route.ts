/** The address of a view: `#/fabric/link/h3%2Frail0?window=1h`. Everything that a view shows can be
 *  shared by its address. */
import { useEffect, useState } from "preact/hooks";

export interface Route {
  path: string[];
  query: Record<string, string>;
}

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path: parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function href(path: string[], query: Record<string, string | number | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== "") search.set(name, String(value));
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parseRoute(hash);
}

/** Change parameters of the present view without a new entry in the history. */
export function setQuery(changes: Record<string, string | number | undefined>): void {
  const route = parseRoute(location.hash);
  history.replaceState(null, "", href(route.path, { ...route.query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
