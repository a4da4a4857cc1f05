/** The tree of an audit, and its table of agents × NICs. Pure. */
import type { AuditPort, AuditSection, AuditVerdict, Cell, Fleet, Matrix, Port } from "./messages";
import { AUDIT_ORDER, PORT_STALE_NS, PORT_TONES, type Tone } from "./status";
import { byName } from "./format";

export interface Branch {
  name: string;
  counts: Record<string, number>;
  sections: AuditSection[];
}

export function treeOf(sections: readonly AuditSection[]): Branch[] {
  const found = new Map<string, Branch>();
  for (const each of sections) {
    const branch = found.get(each.branch) ?? { name: each.branch, counts: {}, sections: [] };
    found.set(each.branch, branch);
    branch.sections.push(each);
    for (const [status, n] of Object.entries(each.counts)) branch.counts[status] = (branch.counts[status] ?? 0) + n;
  }
  return [...found.values()];
}

/** Verdicts that say the same of several subjects, or by several checks, as one. */
export function sameOf(verdicts: readonly AuditVerdict[]): Said[] {
  const subjects = folded(verdicts.map((each) => ({ ...each, checks: [each.check], subjects: [each.subject] })), "subjects");
  for (const each of subjects) each.subjects.sort(byName);
  return folded(subjects, "checks");
}

/** A verdict that several checks came to for the same reason, or several subjects got. */
export type Said = AuditVerdict & { checks: string[]; subjects: string[] };

/** One of those that differ in nothing but the check or the subject, with the names of all. */
function folded(some: readonly Said[], by: "checks" | "subjects"): Said[] {
  const found = new Map<string, Said>();
  for (const each of some) {
    const same = by === "checks" ? { check: "", checks: [], branch: "", section: "", subject: "" } : { subject: "", subjects: [] };
    const key = JSON.stringify({ ...each, ...same });
    const known = found.get(key);
    if (known) known[by].push(...each[by]);
    else found.set(key, each);
  }
  return [...found.values()];
}

export const worstOf = (statuses: readonly string[]): string =>
  AUDIT_ORDER.find((each) => statuses.includes(each)) ?? "";

/** One step of a NIC towards carrying traffic, and who says so. */
export interface Step {
  status: string;
  text?: string;
  source: string;
}
export interface NicRow {
  host: string;
  nic: string;
  status: string;
  initialized: Step;
  active: Step;
  gid: Step;
  connectivity: Step;
}

const NOTHING: Step = { status: "", source: "no check said anything" };
const BY_AUDIT = "the audit";
/** How far back probes say who is reached. */
export const REACH_NS = 30e9;
const REACHED = `probes of the last ${REACH_NS / 1e9} s`;
const VERDICTS: Partial<Record<Tone, string>> = { ok: "pass", warn: "warn", bad: "fail" };

/** A row for each NIC of each agent: what the audit says, and where it says nothing, what agents and
 *  probes report now. */
export function nicRows(ports: readonly AuditPort[], fleet: Fleet | undefined, links: readonly Port[], nowNs: number, matrix: Matrix | undefined): NicRow[] {
  const rows = new Map<string, NicRow>();
  const known = new Map(links.map((each) => [each.nic, each]));
  const reach = reachOf(matrix);
  for (const agent of fleet?.agents ?? [])
    for (const nic of agent.nics) {
      const name = `${agent.host}/${nic.name}`;
      const port = known.get(name);
      const seen = port && nowNs - port.seen_ns < PORT_STALE_NS ? port : undefined;
      rows.set(name, {
        host: agent.host, nic: nic.name, status: "",
        initialized: agent.connected ? (port ? { status: seen ? "pass" : "unknown", source: "its agent, now" } : NOTHING) : { status: "unknown", source: "its agent is not connected" },
        active: seen ? { status: VERDICTS[PORT_TONES[seen.state] ?? ""] ?? "unknown", source: "its agent, now" } : { status: port ? "unknown" : "", source: port ? "its agent, a while ago" : NOTHING.source },
        gid: nic.rdma ? NOTHING : { status: "skip", text: "no RDMA", source: "its agent, now" },
        connectivity: reach.get(name) ?? (matrix && agent.connected ? { status: "unknown", text: "no probe reported", source: REACHED } : NOTHING),
      });
    }
  for (const each of ports) {
    const device = each.nic.split(":")[0];
    const port = links.find((link) => link.nic.startsWith(`${each.host}/`) && (link.rdma === device || link.rdma === each.nic));
    const key = port?.nic ?? `${each.host}/${each.nic}`;
    const before = rows.get(key);
    const step = (status: string, other: Step | undefined, text = ""): Step =>
      status ? { status, source: BY_AUDIT, ...(text ? { text } : {}) } : other ?? NOTHING;
    rows.set(key, {
      host: each.host, nic: each.nic, status: "",
      initialized: step(each.initialized, before?.initialized),
      active: step(each.active, before?.active),
      gid: step(each.gid, undefined, each.gid_index),
      connectivity: step(each.connectivity, before?.connectivity),
    });
  }
  for (const row of rows.values()) row.status = worstOf([row.initialized, row.active, row.gid, row.connectivity].map((step) => step.status));
  const rank = (row: NicRow) => (AUDIT_ORDER as readonly string[]).indexOf(row.status);
  return [...rows.values()].sort((a, b) => rank(a) - rank(b) || byName(a.host, b.host) || byName(a.nic, b.nic));
}

/** Of each NIC, how many peers answered its probes in the last window. One dead NIC is one failure:
 *  a peer that most others do not hear either is held against itself alone. */
export function reachOf(matrix: Matrix | undefined): Map<string, Step> {
  const cells = matrix?.cells ?? [];
  const tally = (chosen: readonly Cell[], end: "src" | "dst") => {
    const sums = new Map<string, [number, number]>();
    for (const cell of chosen) {
      const sum = sums.get(cell[end]) ?? [0, 0];
      sums.set(cell[end], [sum[0] + Number(cell.owd_p50_ns !== null), sum[1] + 1]);
    }
    return sums;
  };
  const silent = new Set([...tally(cells, "dst")].filter(([, [heard, all]]) => heard * 2 < all).map(([nic]) => nic));
  const others = tally(cells.filter((cell) => silent.has(cell.src) || !silent.has(cell.dst)), "src");
  return new Map([...others].map(([nic, [heard, all]]) => [nic, { status: heard === all ? "pass" : "fail", text: `${heard} of ${all} peers`, source: REACHED }]));
}
