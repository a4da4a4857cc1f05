/** Answers for views: cached by address, asked again when their topic changes or grows old. */
import { useEffect, useRef, useState } from "preact/hooks";
import { address, type Params, Problem, request } from "./api";
import { onChange, type Topic } from "./live";

export interface Answer<T> {
  data: T | undefined;
  problem: Problem | undefined;
  /** When `data` came, by this browser's clock in ms; 0: never. */
  at: number;
  loading: boolean;
  reload: () => void;
}

interface Options {
  /** Ask again when one of these changes. */
  on?: readonly Topic[];
  /** … and after so many ms, while the page is seen: not below how often the answer can change. */
  every?: number;
}

const CACHED = 60;
const cache = new Map<string, { data: unknown; at: number }>();
const pending = new Map<string, Promise<unknown>>();

export function forgetAnswers(): void {
  cache.clear();
}

/** One request at a time for an address. One under way may have been answered before what `changed`:
 *  then another follows it. */
function fetchOnce(url: string, changed = false): Promise<unknown> {
  let found = pending.get(url);
  if (found && changed) return found.catch(() => undefined).then(() => fetchOnce(url));
  if (!found) {
    found = request("GET", url)
      .then((data) => {
        cache.delete(url);
        cache.set(url, { data, at: Date.now() });
        for (const old of [...cache.keys()].slice(0, -CACHED)) cache.delete(old);
        return data;
      })
      .finally(() => pending.delete(url));
    pending.set(url, found);
  }
  return found;
}

/** An answer of the API; null asks nothing. While another is on its way the last one stays. */
export function useQuery<T>(name: string | null, params: Params = {}, options: Options = {}): Answer<T> {
  const url = name === null ? null : address(name, params);
  const [, redraw] = useState(0);
  const problem = useRef<Problem | undefined>(undefined);
  const loading = useRef(false);
  const shown = useRef<{ name: string | null; data: T | undefined; at: number }>({ name, data: undefined, at: 0 });
  const ask = useRef<(changed?: boolean) => void>(() => undefined);
  const topics = options.on?.join() ?? "";

  useEffect(() => {
    if (url === null) return;
    let live = true;
    const draw = () => live && redraw((n) => n + 1);
    ask.current = (changed) => {
      loading.current = true;
      fetchOnce(url, changed)
        .then(() => (problem.current = undefined), (found: unknown) => {
          problem.current = found instanceof Problem ? found : new Problem(-1, "error", String(found));
        })
        .finally(() => {
          if (live) loading.current = false;
          draw();
        });
    };
    problem.current = undefined;
    ask.current();
    draw();
    const forget = onChange((topics ? topics.split(",") : []) as Topic[], () => ask.current(true));
    const timer = options.every
      ? setInterval(() => document.visibilityState === "visible" && ask.current(), options.every)
      : undefined;
    return () => {
      live = false;
      forget();
      clearInterval(timer);
    };
  }, [url, topics, options.every]);

  const cached = url === null ? undefined : (cache.get(url) as { data: T; at: number } | undefined);
  if (cached) shown.current = { name, ...cached };
  else if (shown.current.name !== name) shown.current = { name, data: undefined, at: 0 };
  return {
    data: shown.current.data,
    at: shown.current.at,
    problem: problem.current,
    loading: loading.current,
    reload: () => ask.current(),
  };
}
