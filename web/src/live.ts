/** What the controller says has changed, by server-sent events, and whether it can be reached. */
import { useEffect, useState } from "preact/hooks";
import { checkSession, onReach } from "./api";

export type Topic = "incidents" | "fleet" | "switch" | "jobs";
export const TOPICS: Topic[] = ["incidents", "fleet", "switch", "jobs"];
const RETRY_MS = 2_000;
type Link = "connecting" | "live" | "lost";

const heard = new Map<Topic, Set<() => void>>(TOPICS.map((topic) => [topic, new Set()]));
const returned = new Set<() => void>();
const watchers = new Set<(link: Link) => void>();
let source: EventSource | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;
let link: Link = "connecting";

function turn(next: Link): void {
  if (next === link) return;
  const back = link === "lost" && next === "live";
  link = next;
  watchers.forEach((each) => each(next));
  if (back) returned.forEach((each) => each());
}

/** Begin to listen; the browser resumes after the last event by itself. */
export function connect(): void {
  disconnect();
  const opened = new EventSource("/api/v1/events");
  source = opened;
  opened.onopen = () => turn("live");
  opened.onerror = () => {
    turn("lost");
    // A browser gives up after an HTTP error: the session has ended, or a controller restarts.
    if (opened.readyState === EventSource.CLOSED && source === opened) {
      retry = setTimeout(connect, RETRY_MS);
      void checkSession();
    }
  };
  for (const topic of TOPICS)
    opened.addEventListener(topic, () => heard.get(topic)?.forEach((each) => each()));
}

export function disconnect(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
}

onReach((reached) => {
  if (!source) return;
  if (!reached) turn("lost");
  else if (source.readyState === EventSource.OPEN) turn("live");
});

/** Call when a topic changed, and when the connection is back: anything may have been missed. */
export function onChange(topics: readonly Topic[], listener: () => void): () => void {
  for (const topic of topics) heard.get(topic)?.add(listener);
  returned.add(listener);
  return () => {
    for (const topic of topics) heard.get(topic)?.delete(listener);
    returned.delete(listener);
  };
}

export function useLink(): Link {
  const [state, setState] = useState(link);
  useEffect(() => {
    setState(link);
    watchers.add(setState);
    return () => void watchers.delete(setState);
  }, []);
  return state;
}
