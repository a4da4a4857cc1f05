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

/** One of a view's options; the usual one where the address names none of them. */
export function choiceOf<T extends string>(given: string | undefined, options: readonly (readonly [T, ...unknown[]])[], usual: T): T {
  return options.find(([each]) => each === given)?.[0] ?? usual;
}

/** A number of 0 or more from an address; the usual one where it is none. */
export function numberOf(given: string | undefined, usual: number): number {
  const value = given ? Number(given) : usual;
  return value >= 0 && value < 1e15 ? value : usual;
}

/** An instant in ns from an address; 0 where it is none that a controller could know. */
export function instantOf(given: string | undefined): number {
  const ns = Number(given);
  return ns > 0 && ns < 2 ** 62 ? Math.floor(ns) : 0;
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
