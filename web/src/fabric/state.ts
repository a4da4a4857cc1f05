/** What is known of every device and cable now, by name. Pure. */
import type { Fleet, Finding, Incident, LinkLoad, Matrix, Port, Queue } from "../messages";
import { PORT_STALE_NS, PORT_TONES, type Tone } from "../status";

export interface Known {
  tone: Tone;
  /** Why, one line each. */
  why: string[];
  /** 0 to 1, of the fuller direction; undefined: not known. */
  load?: number;
  /** Share of probes lost; undefined: not known. */
  loss?: number;
}

const RANK: Tone[] = ["", "ok", "info", "unknown", "warn", "bad"];

export interface Sources {
  ports: readonly Port[];
  nowNs: number;
  fleet: Fleet | undefined;
  findings: readonly Finding[];
  queues: readonly Queue[];
  incidents: readonly Incident[];
  loads: readonly LinkLoad[];
  matrix: Matrix | undefined;
  /** Nothing but probes tells which NICs were up: those that were heard. */
  heard?: boolean;
}

/** `h3/rail0`, not a switch, a host or a cable. */
export const isNic = (name: string): boolean => /^[^/\s]+\/[^/\s]+$/.test(name) && !/->|--/.test(name);

/** The NICs that a subject of an incident names: itself, ends of a pair or cable, suspects. */
export const nicsIn = (subject: string): string[] => subject.split(/ or |<->|->|--/).filter(isNic);

export const cableName = (a: string, b: string) => (a < b ? `${a}--${b}` : `${b}--${a}`);

/** `a--b` of `a->b`; anything else as it is. */
export function undirected(name: string): string {
  const [a, b] = name.split("->");
  return a && b && !name.includes("<->") ? cableName(a, b) : name;
}

export function knownOf(sources: Sources): Map<string, Known> {
  const found = new Map<string, Known>();
  const of = (name: string): Known => {
    let known = found.get(name);
    if (!known) found.set(name, (known = { tone: "", why: [] }));
    return known;
  };
  const say = (name: string, tone: Tone, why = "") => {
    const known = of(name);
    if (RANK.indexOf(tone) > RANK.indexOf(known.tone)) known.tone = tone;
    if (why && !known.why.includes(why)) known.why.push(why);
  };
  for (const port of sources.ports) {
    if (sources.nowNs - port.seen_ns > PORT_STALE_NS) say(port.nic, "unknown", `port last looked at ${Math.round((sources.nowNs - port.seen_ns) / 1e9)} s ago: ${port.state}`);
    else say(port.nic, PORT_TONES[port.state] ?? "unknown", `port ${port.state}${port.flaps ? `, ${port.flaps} flaps in the last hour` : ""}`);
  }
  for (const agent of sources.fleet?.agents ?? [])
    for (const nic of agent.nics) say(`${agent.host}/${nic.name}`, agent.connected ? "ok" : "unknown", agent.connected ? "" : "agent not connected");
  for (const each of sources.queues) say(undirected(each.component), "warn", `packets wait ${Math.round(each.delay_ns / 1e3)} µs`);
  for (const each of sources.findings) say(undirected(each.component), "bad", `${each.fault}, ${Math.round(each.confidence * 100)} % sure`);
  for (const each of sources.incidents)
    if (each.state !== "resolved" && !each.cause) for (const part of each.subject.split(" or ")) say(undirected(part), each.severity === "critical" ? "bad" : "warn", each.summary);
  for (const each of sources.loads) {
    if (!each.capacity_bps) continue;
    const known = of(undirected(each.link));
    known.load = Math.max(known.load ?? 0, each.bps / each.capacity_bps);
  }
  losses(sources.matrix, of);
  if (sources.heard)
    for (const cell of sources.matrix?.cells ?? []) say(cell.src, cell.owd_p50_ns === null ? "" : "ok", cell.owd_p50_ns === null ? "" : "its probes arrived");
  return found;
}

function losses(matrix: Matrix | undefined, of: (name: string) => Known): void {
  const sums = new Map<string, [number, number]>();
  for (const cell of matrix?.cells ?? [])
    for (const nic of [cell.src, cell.dst]) {
      const sum = sums.get(nic) ?? [0, 0];
      sums.set(nic, [sum[0] + cell.lost, sum[1] + cell.sent]);
    }
  for (const [nic, [lost, sent]] of sums) if (sent) of(nic).loss = lost / sent;
}

/** Whether an incident, a finding or a change is about a device, one of its parts or a cable at it. */
export function concerns(subject: string, name: string): boolean {
  return subject.split(" or ").some((part) => part === name || undirected(part) === undirected(name) || part.startsWith(`${name}/`) || part.split(/<->|->|--/).includes(name));
}
