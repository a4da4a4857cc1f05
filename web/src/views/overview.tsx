/** Overview: the fleet at a glance, and what changed in the last hour. */
import type { VNode } from "preact";
import { bound } from "../clocks";
import { causesIn, doneIn, episodesOf } from "../episodes";
import { clock, count, duration, instant, many, percent } from "../format";
import type { Change, ClockHistory, Clocks, FabricChange, FailoverStatus, Fleet, Incidents, Jobs, Matrix, PathEvent } from "../messages";
import { useQuery } from "../query";
import { href } from "../route";
import { type Tone, toneOf } from "../status";
import { Badge, Empty, Head, Loaded, Name, Panel, Stat, Table } from "../ui";
import { Plot } from "../plot";
import { causes, IncidentTable } from "./incidents";

const HOUR_NS = 3600e9;

export function Overview() {
  const fleet = useQuery<Fleet>("fleet", {}, { on: ["fleet"], every: 10_000 });
  const incidents = useQuery<Incidents>("incidents", {}, { on: ["incidents"] });
  const clocks = useQuery<Clocks>("clock", {}, { every: 5_000 });
  const matrix = useQuery<Matrix>("matrix", { window_ns: 10e9 }, { every: 10_000 });
  const status = useQuery<FailoverStatus>("failover-status", {}, { on: ["switch"], every: 30_000 });
  const jobs = useQuery<Jobs>("jobs", { window_ns: HOUR_NS }, { on: ["jobs"], every: 30_000 });
  const open = live(incidents.data);
  return (
    <>
      <Head title="Overview" />
      <div class="grid">
        <FleetStat fleet={fleet.data} />
        <Stat label="Open incidents" to="#/incidents" value={incidents.data ? count(open.length) : "–"}
          tone={open.some((each) => each.severity === "critical") ? "bad" : open.length ? "warn" : incidents.data ? "ok" : ""}
          note={open[0]?.summary ?? (incidents.data ? "Nothing is wrong, as far as can be seen." : "")} />
        <ClockStat clocks={clocks.data} />
        <ProbeStat matrix={matrix.data} sent={fleet.data?.probes_per_s ?? 0} />
        <Panel title="Open incidents" width="w8" flush tools={<a href="#/incidents">All</a>}>
          <Loaded answer={incidents}>{(data) => <IncidentTable incidents={live(data).slice(0, 6)} all={data.incidents} />}</Loaded>
        </Panel>
        <Control status={status.data} jobs={jobs.data} />
        <Changed />
        <Panel title="Hosts" width="w5" flush>
          <Loaded answer={fleet}>{(data) => <Hosts fleet={data} />}</Loaded>
        </Panel>
        <BoundHistory />
      </div>
    </>
  );
}

/** Causes that are not over. */
const live = (data: Incidents | undefined) => causes(data?.incidents ?? []).filter((each) => each.state !== "resolved");

function FleetStat({ fleet }: { fleet: Fleet | undefined }) {
  if (!fleet) return <Stat label="Agents" value="–" />;
  const up = fleet.agents.filter((each) => each.connected).length;
  const nics = fleet.agents.reduce((sum, each) => sum + each.nics.length, 0);
  return <Stat label="Agents connected" value={<>{up}<span class="muted"> / {fleet.agents.length}</span></>} tone={up < fleet.agents.length ? "bad" : ""} note={fleet.agents.length ? `${many(nics, "NIC")}, ${count(Math.round(fleet.probes_per_s))} probes/s` : "No agent has attached yet."} />;
}

function ClockStat({ clocks }: { clocks: Clocks | undefined }) {
  if (!clocks) return <Stat label="Clocks" value="–" />;
  const lines = clocks.timelines;
  const good = lines.filter((each) => each.state === "SYNCHRONIZED").length;
  const bounds = lines.map(bound).filter((each) => each !== null);
  return <Stat label="Clocks synchronized" to="#/clock" value={lines.length ? <>{good}<span class="muted"> / {lines.length}</span></> : "unknown"}
    tone={!lines.length ? "unknown" : good < lines.length ? "warn" : ""} note={bounds.length ? `largest bound ${duration(Math.max(...bounds))}` : "No clock has been measured yet."} />;
}

function ProbeStat({ matrix, sent: perSecond }: { matrix: Matrix | undefined; sent: number }) {
  if (!matrix) return <Stat label="Probe coverage" value="–" />;
  const { cells } = matrix;
  const heard = cells.filter((each) => each.owd_p50_ns !== null).length;
  const sent = cells.reduce((sum, each) => sum + each.sent, 0);
  const lost = cells.reduce((sum, each) => sum + each.lost, 0);
  return <Stat label="Probe coverage, last 10 s" to="#/delay" value={cells.length ? percent(heard / cells.length) : "unknown"} tone={!cells.length ? "unknown" : heard < cells.length ? "bad" : ""}
    note={cells.length ? `${count(heard)} of ${count(cells.length)} directions, ${percent(sent ? lost / sent : null)} lost` : perSecond > 0 ? "Reports of these seconds are late." : "No probe of that time has been reported."} />;
}

function Control({ status, jobs }: { status: FailoverStatus | undefined; jobs: Jobs | undefined }) {
  const modes = new Map<string, number>();
  for (const each of status?.hosts ?? []) {
    const mode = each.report.stopped ? "stopped" : each.report.mode;
    modes.set(mode, (modes.get(mode) ?? 0) + 1);
  }
  const running = jobs?.jobs.filter((each) => each.running > 0) ?? [];
  return (
    <Panel title="Jobs and traffic control" width="w4">
      <dl class="facts">
        <dt>Jobs running</dt><dd>{jobs ? running.length || "none" : "–"}</dd>
        {running.slice(0, 5).map((job) => <><dt /><dd><a href={href(["jobs", job.job])}>{job.job}</a> <span class="note">{many(job.hosts.length, "host")}{job.ranks > 0 && `, ${many(job.ranks, "rank")}`}</span></dd></>)}
        <dt>Stop switch</dt><dd>{!status ? "–" : status.switch?.stopped ? <><Badge word="stopped" /> by {status.switch.by}</> : "not thrown"}</dd>
        <dt>Agents</dt><dd>{[...modes].map(([mode, hosts]) => <div key={mode}>{hosts} <Badge word={mode} /></div>)}{status && !modes.size && "none report"}</dd>
      </dl>
    </Panel>
  );
}

function Hosts({ fleet }: { fleet: Fleet }) {
  const trouble = (each: Fleet["agents"][number]) => each.parts.filter((part) => part.state !== "running");
  const rows = [...fleet.agents].sort((a, b) => Number(a.connected) - Number(b.connected) || trouble(b).length - trouble(a).length);
  return (
    <div class="scroll">
      <Table label="Hosts" rows={rows} key_={(each) => each.host}
        empty={<Empty what="No agent is attached." next={<>Start one with <code>syntony agent run</code> on each host, or a lab with <code>syntony lab up</code>.</>} />}
        columns={[
          { title: "Host", cell: (each) => <Name to={href(["fabric", each.host])}>{each.host}</Name>, sort: (each) => each.host },
          { title: "Agent", cell: (each) => <><Badge word={each.connected ? "connected" : "disconnected"} />{trouble(each).slice(0, 2).map((part) => <div class="note" key={part.name}>{part.name}: {part.state} {part.reason}</div>)}{each.faults.map((fault) => <div class="note" key={fault}>{fault}</div>)}</>, sort: (each) => Number(each.connected) },
          { title: "NICs", num: true, cell: (each) => each.nics.length, sort: (each) => each.nics.length },
          { title: "Probes/s", num: true, cell: (each) => count(Math.round(each.probes_per_s)), sort: (each) => each.probes_per_s },
        ]} />
    </div>
  );
}

interface Line { at_ns: number; kind: string; tone: Tone; text: string; to?: string }

/** Everything that changed in the last hour, newest first: one line each. */
export function merged(changes: readonly Change[], fabric: readonly FabricChange[], paths: readonly PathEvent[], incidents: Incidents | undefined, sinceNs: number): Line[] {
  const lines: Line[] = [
    ...changes.map((each) => ({ at_ns: each.at_ns, kind: "order", tone: "info" as const, text: `${each.what} ${each.before ? `${each.before} → ` : ""}${each.after} by ${each.who}${each.comment ? `: ${each.comment}` : ""}` })),
    ...fabric.map((each) => ({ at_ns: each.ts_ns, kind: "fabric", tone: "warn" as const, text: `${each.what} ${each.name} ${each.change} ${each.detail}` })),
    ...pathLines(paths),
    ...(incidents?.incidents ?? []).flatMap((each) => [
      { at_ns: each.opened_ns, kind: "incident", tone: toneOf(each.severity), text: `opened: ${each.summary}`, to: href(["incidents", String(each.number)]) },
      ...(each.resolved_ns ? [{ at_ns: each.resolved_ns, kind: "incident", tone: "ok" as const, text: `over: ${each.summary}`, to: href(["incidents", String(each.number)]) }] : []),
    ]),
  ];
  return lines.filter((each) => each.at_ns >= sinceNs).sort((a, b) => b.at_ns - a.at_ns);
}

export function ChangeList({ lines, empty }: { lines: Line[]; empty: VNode }) {
  if (!lines.length) return empty;
  return (
    <ul class="lines scroll" tabIndex={0} aria-label="Changes, newest first">
      {lines.map((line, n) => (
        <li key={n}><time class="muted" title={instant(line.at_ns)}>{clock(line.at_ns)}</time><span><Badge word={line.kind} tone={line.tone} /></span>{line.to ? <a href={line.to}>{line.text}</a> : <span>{line.text}</span>}</li>
      ))}
    </ul>
  );
}

/** Changes of paths, one line for those of a job that belong together: a bad NIC makes hundreds. */
function pathLines(paths: readonly PathEvent[]): Line[] {
  return episodesOf(paths, (each) => each.job).map((episode) => {
    const [newest] = episode.events as [PathEvent];
    const hosts = new Set(episode.events.map((each) => each.host));
    const where = episode.events.length > 1
      ? `on ${many(hosts.size, "host")} since ${clock(episode.events.at(-1)?.ts_ns ?? 0)}`
      : `${newest.host}, ${[newest.old_path, newest.new_path].filter(Boolean).join(" → ")}`;
    return { at_ns: newest.ts_ns, kind: "path", tone: toneOf(newest.result), text: `${newest.job}: ${doneIn(episode)} (${causesIn(episode)}) ${where}`, to: href(["traffic"], { job: newest.job }) };
  });
}

function Changed() {
  const changes = useQuery<{ changes: Change[] }>("changes", { window_ns: HOUR_NS }, { on: ["incidents", "switch", "fleet"] });
  const fabric = useQuery<{ changes: FabricChange[] }>("fabric-changes", { window_ns: HOUR_NS }, { on: ["incidents", "fleet"] });
  const paths = useQuery<{ events: PathEvent[] }>("failover-log", { window_ns: HOUR_NS }, { on: ["incidents", "switch"], every: 15_000 });
  const incidents = useQuery<Incidents>("incidents", { since_ns: HOUR_NS }, { on: ["incidents"] });
  return (
    <Panel title="Changed in the last hour" width="w7" flush>
      <Loaded answer={changes}>
        {(data) => {
          const lines = merged(data.changes, fabric.data?.changes ?? [], paths.data?.events ?? [], incidents.data, 0).slice(0, 100);
          return <ChangeList lines={lines} empty={<Empty what="Nothing changed in the last hour." next="Orders, changes of the fabric, failovers and incidents appear here." />} />;
        }}
      </Loaded>
    </Panel>
  );
}

function BoundHistory() {
  const answer = useQuery<ClockHistory>("clock-history", { window_ns: HOUR_NS, step_ns: 30e9 }, { every: 30_000 });
  return (
    <Panel title="Largest clock bound, last hour" width="w12" tools={<a href="#/clock">Clocks</a>}>
      <Loaded answer={answer}>
        {(data) => {
          const steps = new Map<number, number | null>();
          for (const each of data.samples) {
            const at = Math.round(each.ts_ns / data.step_ns) * data.step_ns;
            const before = steps.get(at);
            if (each.bound_ns === null || before === null) steps.set(at, null);
            else steps.set(at, Math.max(before ?? 0, each.bound_ns));
          }
          const times = [...steps.keys()].sort((a, b) => a - b);
          if (!times.length) return <Empty what="No clock has been solved yet." next="It takes about ten seconds after two agents have attached." />;
          return <Plot label="Largest bound of the clocks' errors over the last hour" times={times} span={HOUR_NS} lines={[{ label: "largest bound", values: times.map((at) => steps.get(at) ?? null), fill: true }]} show={duration} height={120} log />;
        }}
      </Loaded>
    </Panel>
  );
}

