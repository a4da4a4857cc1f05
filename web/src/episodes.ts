/** Changes of paths, folded: a path that stays bad is tried again for hours, and each try is a row of
 *  the log. What is alike and close in time is one episode. Pure. */
import type { PathEvent } from "./messages";

/** `failover`: a path was left, or would have been; `return`: attempts to use one again. */
export type Kind = "failover" | "return";

export interface Episode {
  /** Stays the same while the episode grows. */
  key: string;
  kind: Kind;
  /** Newest first. */
  events: PathEvent[];
}

/** An episode is over when nothing like it has happened for so long: attempts to return are at most a minute apart. */
const QUIET_NS = 180e9;
const RETURNING = new Set(["return", "join"]);
const OF_NEW = new Set(["request", "create", "join-failed"]);

/** Whether a path was left, or would have been: what a chart marks. Paths that are tried, added and back are in the log. */
export const isFailure = (event: PathEvent): boolean => kindOf(event) === "failover" && !OF_NEW.has(event.action) && event.action !== "whole";

export const kindOf = (event: PathEvent): Kind => (RETURNING.has(event.cause) ? "return" : "failover");

/** The path that an event is about. */
export const pathOf = (event: PathEvent): string => (OF_NEW.has(event.action) ? event.new_path : event.old_path) || event.new_path || event.old_path;

/** The NICs of a path, without ports: `h0/rail1 > h3/rail1`. */
export const nicsOf = (path: string): string => path.replace(/:\d+(?= |>|$)/g, "");

/** One host's changes between the same two NICs for a job. */
export const byNics = (event: PathEvent): string => [event.host, event.job, nicsOf(pathOf(event))].join("\u0000");

const DONE: Record<string, string> = {
  create: "path added", destroy: "path closed", request: "path asked for", "join-failed": "path not joined", avoid: "path avoided", "avoid-end": "path used again",
  whole: "all rails back", degraded: "a rail without a path", standby: "path on standby", resume: "path in use again", "keep-last-path": "last path kept",
  "would-leave": "would leave the path", "would-replace": "would replace the path", "would-standby": "would put the path on standby", "would-detour": "would take a detour",
};

/** What was done to a path, in words; others are words already. */
export const doneOf = (action: string): string => DONE[action] ?? action;

/** Events of one kind that `alike` gives the same text and that are close in time; the newest episode first. */
export function episodesOf(events: readonly PathEvent[], alike: (event: PathEvent) => string): Episode[] {
  const found: Episode[] = [];
  const newest = new Map<string, Episode[]>();
  for (const event of [...events].sort((a, b) => b.ts_ns - a.ts_ns)) {
    const kind = kindOf(event);
    const group = `${kind}\u0000${alike(event)}`;
    const before = newest.get(group) ?? [];
    const last = before.at(-1);
    if (last && (last.events.at(-1)?.ts_ns ?? 0) - event.ts_ns <= QUIET_NS) {
      last.events.push(event);
      continue;
    }
    const episode = { key: `${group}\u0000${before.length}`, kind, events: [event] };
    newest.set(group, [...before, episode]);
    found.push(episode);
  }
  return found;
}

/** `9 × path closed, 3 × path added`, the most frequent first; without a number what happened once only. */
export function tally(texts: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.map(([text, n]) => (texts.length > 1 ? `${n} × ${text}` : text)).join(", ");
}

export const doneIn = (episode: Episode): string => tally(episode.events.map((each) => doneOf(each.action)));
export const causesIn = (episode: Episode): string => [...new Set(episode.events.map((each) => each.cause))].join(", ");
