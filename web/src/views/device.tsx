/** One device, NIC or link: its state, history, counters, incidents and the flows that cross it. */
import { useMemo } from "preact/hooks";
import { curveOf, stepOf } from "../delay/curve";
import { gapOf, gapText, isLost } from "../delay/matrix";
import { concerns, isNic, undirected } from "../fabric/state";
import { ago, count, digits, duration, instant, many, percent, rate } from "../format";
import type { Mark } from "../marks";
import type { Cell, FabricChange, FabricMap, Incidents, LinkHistory, Links, Matrix, Point, Port, Traffic } from "../messages";
import { Plot } from "../plot";
import { useQuery } from "../query";
import { choiceOf, href, type Route, setQuery } from "../route";
import { PORT_TONES } from "../status";
import { Badge, Choice, Empty, Head, Loaded, Name, Panel, Table } from "../ui";
import { useKnown } from "./fabric";
import { causes, IncidentTable } from "./incidents";

const WINDOWS = [["1h", "1 h"], ["1d", "24 h"], ["7d", "7 d"]] as const;
const LENGTH: Record<string, number> = { "1h": 3600e9, "1d": 86_400e9, "7d": 604_800e9 };

export function DevicePage({ name, route }: { name: string; route: Route }) {
  const window = choiceOf(route.query["window"], WINDOWS, "1d");
  const length = LENGTH[window] ?? 86_400e9;
  const { known } = useKnown();
  const state = known.get(undirected(name));
  const nic = isNic(name);
  const incidents = useQuery<Incidents>("incidents", { since_ns: length }, { on: ["incidents"] });
  // What is open is known at once; what was is read from the store.
  const open = useQuery<Incidents>("incidents", {}, { on: ["incidents"] });
  const changes = useQuery<{ changes: FabricChange[] }>("fabric-changes", { window_ns: length }, { on: ["incidents", "fleet"] });
  return (
    <>
      <Head title={<><span class="crumb"><a href={href(["fabric"], { at: name })}>Fabric</a> / </span><span class="mono">{name}</span></>}>
        <Badge word={state?.tone ? { bad: "bad", warn: "warning", unknown: "unknown", ok: "ok", info: "info" }[state.tone] : "nothing known"} tone={state?.tone ?? ""} />
        <Choice label="How far back" value={window} options={WINDOWS} pick={(value) => setQuery({ window: value })} />
      </Head>
      <div class="grid">
        <div class="stack w7">
          <Panel title="Incidents" flush tools={!incidents.data && open.data && <span class="muted" role="status">Open ones; earlier ones are being looked up…</span>}>
            <Loaded answer={incidents.data || !open.data ? incidents : { ...open, problem: incidents.problem }}>{(data) => <IncidentTable incidents={causes(data.incidents.filter((each) => concerns(each.subject, name) || each.members.includes(name)).map((each) => ({ ...each, cause: 0 })))} all={data.incidents} />}</Loaded>
          </Panel>
          {nic && <DelayCurve nic={name} length={length} />}
          {nic && <PortHistory nic={name} length={length} />}
          <Crossing name={name} />
        </div>
        <div class="stack w5">
          <Panel title="Now">
            {state?.why.length ? <ul class="evidence">{state.why.map((why) => <li key={why}>{why}</li>)}</ul> : <span class="muted">Nothing is known against it.</span>}
            {(state?.load !== undefined || state?.loss !== undefined) && <p class="note">{state.load !== undefined && `Load ${percent(state.load)}. `}{state.loss !== undefined && `Probes lost in the last 10 s: ${percent(state.loss)}.`}</p>}
          </Panel>
          {nic && <PortFacts nic={name} />}
          <Neighbours name={name} />
          <Panel title="Changes of the fabric" flush>
            <Loaded answer={changes}>
              {(data) => <Table label="Changes" rows={data.changes.filter((each) => concerns(each.name, name)).reverse()} empty={<Empty what="None in that time." />} columns={[
                { title: "When", cell: (each) => <span class="nowrap">{instant(each.ts_ns)}</span> },
                { title: "What", cell: (each) => `${each.what} ${each.change}` },
                { title: "Detail", cell: (each) => <span class="note">{each.name} {each.detail}</span> },
              ]} />}
            </Loaded>
          </Panel>
        </div>
      </div>
    </>
  );
}

function PortFacts({ nic }: { nic: string }) {
  const links = useQuery<Links>("links", {}, { on: ["fleet", "incidents"], every: 10_000 });
  return (
    <Panel title="Port">
      <Loaded answer={links}>
        {(data) => {
          const port = data.ports.find((each) => each.nic === nic);
          return port ? <Facts port={port} now={data.now_ns} /> : <Empty what="No port of that name is known." next="The agent of its host reports ports once it is attached." />;
        }}
      </Loaded>
    </Panel>
  );
}

function Facts({ port, now }: { port: Port; now: number }) {
  const optics = [port.temperature_c !== null && `${digits(port.temperature_c)} °C`, port.rx_dbm !== null && `${digits(port.rx_dbm)} dBm received`, port.bias_ma !== null && `${digits(port.bias_ma)} mA bias`].filter(Boolean);
  return (
    <dl class="facts">
      <dt>Carrier</dt><dd><Badge word={port.state} tone={PORT_TONES[port.state] ?? "unknown"} /> seen {ago(port.seen_ns, now)}</dd>
      <dt>Speed</dt><dd>{port.gbps === null ? "unknown" : `${digits(port.gbps)} Gb/s`}</dd>
      <dt>Traffic</dt><dd>sends {rate(port.tx_bps)}, receives {rate(port.rx_bps)}</dd>
      <dt>Role</dt><dd>{port.role}</dd>
      <dt>Device</dt><dd>{[port.netdev, port.rdma, port.driver].filter(Boolean).join(", ") || "unknown"}</dd>
      <dt>Flaps</dt><dd>{many(port.flaps, "loss", "losses")} of carrier in {duration(port.watched_ns)} watched{port.last_flap_ns ? `, the last ${ago(port.last_flap_ns, now)}` : ""}</dd>
      <dt>Module</dt><dd>{optics.length ? optics.join(", ") : "unknown"}</dd>
    </dl>
  );
}

/** `end`: of the time that is shown, fleet time; 0: now. */
export function DelayCurve({ nic, length, end = 0, marks = [] }: { nic: string; length: number; end?: number; marks?: Mark[] }) {
  const step = stepOf(length);
  const asked = { window_ns: length, step_ns: step, end_ns: end || undefined };
  const again = end ? {} : { every: step / 1e6 };
  const from = useQuery<{ points: Point[] }>("series", { src: nic, ...asked }, again);
  const to = useQuery<{ points: Point[] }>("series", { dst: nic, ...asked }, again);
  const out = useMemo(() => curveOf(from.data?.points ?? []), [from.data]);
  const back = useMemo(() => curveOf(to.data?.points ?? [], out.times), [to.data, out]);
  return (
    <Panel title={<>Delay to and from its peers <span class="crumb mono">{nic}</span></>}>
      <Loaded answer={from}>
        {() => out.times.length ? <>
          <Plot label={`One-way delay of ${nic}`} times={out.times} span={length} height={200} show={duration} log marks={marks} lines={[
            { label: "to its slowest peer", values: out.slowest, colour: "warn" },
            { label: "from its slowest peer", values: back.slowest, colour: "warn", dash: true },
            { label: "to its peers, median", values: out.usual, colour: "accent" },
            { label: "from its peers, median", values: back.usual, colour: "accent", dash: true },
          ]} />
          <Plot label={`Probes of ${nic} lost`} times={out.times} span={length} height={110} show={percent} zero marks={marks} lines={[
            { label: "lost on the way there", values: out.lost, colour: "bad", fill: true },
            { label: "on the way to it", values: back.lost, colour: "bad", dash: true },
          ]} />
          <p class="note">A point each {duration(step)}, medians of probes.</p>
        </> : <Empty what="It was not probed in that time." next="NICs are probed within their rail once their agents are attached." />}
      </Loaded>
    </Panel>
  );
}

function PortHistory({ nic, length }: { nic: string; length: number }) {
  const answer = useQuery<LinkHistory>("link-history", { nic, window_ns: length }, { on: ["incidents"], every: 15_000 });
  const matrix = useQuery<Matrix>("matrix", { window_ns: 60e9 }, { every: 10_000 });
  const median = (each: Cell) => (isLost(each) || each.owd_p50_ns === null ? gapText(gapOf(each, matrix.data?.cells.find((other) => other.src === each.dst && other.dst === nic))) : duration(each.owd_p50_ns));
  const pairs = useMemo(() => matrix.data?.cells.filter((each) => each.src === nic).sort((a, b) => (b.owd_p50_ns ?? Infinity) - (a.owd_p50_ns ?? Infinity)) ?? [], [matrix.data, nic]);
  return (
    <>
      <Panel title="What happened to the port" flush>
        <Loaded answer={answer}>
          {(data) => <div class="scroll"><Table label="Events" rows={[...data.events].reverse()} empty={<Empty what="Nothing in that time." />} columns={[
            { title: "When", cell: (each) => <span class="nowrap">{instant(each.ts_ns)}</span>, sort: (each) => each.ts_ns },
            { title: "What", cell: (each) => <>{each.kind}{each.losses > 0 && ` (${many(each.losses, "loss", "losses")})`}</> },
            { title: "Before → after", cell: (each) => <span class="mono">{[each.before, each.after].filter(Boolean).join(" → ")}</span> },
            { title: "Detail", cell: (each) => <span class="note">{each.detail} {each.remedy}</span> },
          ]} /></div>}
        </Loaded>
      </Panel>
      <Panel title="Counters that went up" flush>
        <Loaded answer={answer}>
          {(data) => <Table label="Counters" rows={data.counters.filter((each) => each.increase > 0 || each.reading === "unknown")} empty={<Empty what="No counter of errors went up." />} columns={[
            { title: "Counter", cell: (each) => <Name>{each.counter}</Name>, sort: (each) => each.counter },
            { title: "By", num: true, cell: (each) => (each.reading === "unknown" ? <Badge word="unknown" /> : `${each.reading === "saturated" ? "≥ " : ""}${count(each.increase)}`), sort: (each) => each.increase },
            { title: "Last", num: true, cell: (each) => ago(each.last_ns, data.now_ns) },
          ]} />}
        </Loaded>
      </Panel>
      <Panel title="Delay to its peers, last minute" flush>
        <div class="scroll"><Table label="Peers" rows={pairs} empty={<Empty what="No probe in the last minute." />} columns={[
          { title: "To", cell: (each) => <Name to={href(["delay", each.src, each.dst])}>{each.dst}</Name>, sort: (each) => each.dst },
          { title: "Median", num: true, cell: median, sort: (each) => each.owd_p50_ns },
          { title: "p99", num: true, cell: (each) => duration(each.owd_p99_ns), sort: (each) => each.owd_p99_ns },
          { title: "Lost", num: true, cell: (each) => percent(each.sent ? each.lost / each.sent : null), sort: (each) => each.lost / each.sent },
        ]} /></div>
      </Panel>
    </>
  );
}

function Neighbours({ name }: { name: string }) {
  const map = useQuery<FabricMap>("topology");
  const ends = name.split(/<->|->|--/);
  const found = (map.data?.cables ?? []).filter((cable) => cable.some((end) => end === name || end.startsWith(`${name}/`)));
  return (
    <Panel title={ends.length > 1 ? "Its ends" : "Cables"}>
      <div class="row">
        {ends.length > 1
          ? ends.map((end) => <Name key={end} to={href(["fabric", end])}>{end}</Name>)
          : found.slice(0, 80).map(([a, b]) => <Name key={`${a}--${b}`} to={href(["fabric", `${a}--${b}`])}>{a === name ? b : b === name ? a : `${a} – ${b}`}</Name>)}
        {ends.length === 1 && !found.length && <span class="muted">None is known.</span>}
        {found.length > 80 && <span class="muted">and {found.length - 80} more</span>}
      </div>
    </Panel>
  );
}

function Crossing({ name }: { name: string }) {
  const answer = useQuery<Traffic>("traffic", {}, { on: ["jobs"], every: 5_000 });
  const cable = undirected(name);
  return (
    <>
      <Panel title="Load by jobs' flows" flush>
        <Loaded answer={answer}>
          {(data) => <Table label="Load" rows={data.links.filter((each) => undirected(each.link) === cable || each.link.split("->").includes(name))} empty={<Empty what="No job's flow is known to cross it." next="Flows of jobs under syntony run are shown here with the links they cross." />} columns={[
            { title: "Direction", cell: (each) => <Name>{each.link}</Name>, sort: (each) => each.link },
            { title: "Rate", num: true, cell: (each) => rate(each.bps), sort: (each) => each.bps },
            { title: "Of", num: true, cell: (each) => (each.capacity_bps ? `${rate(each.capacity_bps)} (${percent(each.bps / each.capacity_bps)})` : "unknown") },
            { title: "Flows", num: true, cell: (each) => each.flows, sort: (each) => each.flows },
            { title: "Packets wait", num: true, cell: (each) => duration(each.queue_ns), sort: (each) => each.queue_ns },
          ]} />}
        </Loaded>
      </Panel>
    </>
  );
}
