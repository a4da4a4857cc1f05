/** What the fleet looked like at a past instant: the map, clocks, incidents and what changed around it. */
import { useMemo, useState } from "preact/hooks";
import { knownOf } from "../fabric/state";
import { layoutOf } from "../fabric/layout";
import { clock, count, duration, instant, many, percent } from "../format";
import type { Change, ClockHistory, FabricChange, FabricMap, Incident, Incidents, Matrix, PathEvent } from "../messages";
import { useQuery } from "../query";
import { choiceOf, href, setQuery } from "../route";
import { Choice, Empty, Head, Loaded, Panel, Stat } from "../ui";
import { MapCanvas, MapLegend } from "./fabric";
import { IncidentTable } from "./incidents";
import { ChangeList, merged } from "./overview";

const LOOK_NS = 30e9;
const AROUND_NS = 300e9;
const REACH_MIN = 30;
const BY = [["state", "State"], ["loss", "Loss"]] as const;

/** Incidents that were open at an instant, as they are told now: without the state they came to since. */
export function openAt(incidents: readonly Incident[], atNs: number): Incident[] {
  return incidents.filter((each) => each.opened_ns <= atNs && (each.resolved_ns === null || each.resolved_ns > atNs)).map((each) => ({ ...each, state: "open" }));
}

export function Then({ incident, at, by: wanted }: { incident: Incident; at: number; by: string | undefined }) {
  const by = choiceOf(wanted, BY, "state");
  const [asked] = useState(Date.now() * 1e6);
  const since = Math.max(0, asked - at) + AROUND_NS;
  const matrix = useQuery<Matrix>("matrix", { window_ns: LOOK_NS, end_ns: at });
  const clocks = useQuery<ClockHistory>("clock-history", { window_ns: LOOK_NS, end_ns: at, step_ns: LOOK_NS });
  const incidents = useQuery<Incidents>("incidents", { since_ns: since + AROUND_NS });
  const map = useQuery<FabricMap>("topology");
  const open = openAt(incidents.data?.incidents ?? [], at);
  const layout = useMemo(() => (map.data ? layoutOf(map.data, []) : undefined), [map.data]);
  const known = useMemo(
    () => knownOf({ ports: [], nowNs: at, fleet: undefined, findings: [], queues: [], loads: [], incidents: open, matrix: matrix.data, heard: true }),
    [matrix.data, incidents.data, at],
  );
  return (
    <>
      <Head title={<><span class="crumb"><a href="#/incidents">Incidents</a> / <a href={href(["incidents", String(incident.number)])}>{incident.number}</a> / </span>The fleet at {instant(at)}</>}>
        <Choice label="Colour by" value={by} options={BY} pick={(value) => setQuery({ by: value })} />
      </Head>
      <div class="stack">
        <Slider opened={incident.opened_ns} at={at} />
        <div class="grid">
          <Coverage matrix={matrix.data} />
          <ClocksThen history={clocks.data} />
          <Stat label="Incidents open then" value={incidents.data ? count(open.filter((each) => !each.cause).length) : "–"} tone={open.some((each) => each.severity === "critical") ? "bad" : open.length ? "warn" : "ok"} note={open[0]?.summary ?? "none"} />
          <Stat label="Looked at" value={Math.abs(at - incident.opened_ns) < 1e9 ? "when it opened" : at < incident.opened_ns ? `${duration(incident.opened_ns - at)} before` : `${duration(at - incident.opened_ns)} after`} note={incident.subject} />
        </div>
        <Panel title={<>Map <span class="crumb">cables as they are now; NICs by the probes of {duration(LOOK_NS)}</span></>} flush tools={<MapLegend by={by} />}>
          <Loaded answer={map}>{() => layout?.boxes.length ? <MapCanvas layout={layout} known={known} by={by} chosen={incident.subject} still /> : <Empty what="No path has been learnt yet." />}</Loaded>
        </Panel>
        <div class="grid">
          <Panel title="Open then" width="w7" flush><Loaded answer={incidents}>{(data) => <IncidentTable incidents={open.filter((each) => !each.cause)} all={data.incidents} />}</Loaded></Panel>
          <Around at={at} since={since} incidents={incidents.data} />
        </div>
      </div>
    </>
  );
}

function Slider({ opened, at }: { opened: number; at: number }) {
  const minutes = Math.round((at - opened) / 60e9);
  const words = minutes === 0 ? "when it opened" : `${many(Math.abs(minutes), "minute")} ${minutes < 0 ? "before" : "after"} it opened`;
  const most = Math.max(0, Math.min(REACH_MIN, Math.floor((Date.now() * 1e6 - opened) / 60e9)));
  const move = (value: number) => setQuery({ then: Math.ceil(opened / 1e9) * 1e9 + value * 60e9 });
  return (
    <div class="row">
      <button type="button" onClick={() => move(Math.max(-REACH_MIN, minutes - 1))}>− 1 min</button>
      <label class="row"><span>Time</span><input type="range" class="wide" min={-REACH_MIN} max={most} step={1} value={minutes} aria-valuetext={words} onChange={(event) => move(Number(event.currentTarget.value))} /></label>
      <button type="button" onClick={() => move(Math.min(most, minutes + 1))}>+ 1 min</button>
      <span class="note">{words}</span>
    </div>
  );
}

function Coverage({ matrix }: { matrix: Matrix | undefined }) {
  if (!matrix) return <Stat label="Probe coverage" value="–" />;
  const heard = matrix.cells.filter((each) => each.owd_p50_ns !== null).length;
  const [sent, lost] = matrix.cells.reduce(([s, l], each) => [s + each.sent, l + each.lost], [0, 0]);
  return <Stat label="Probe coverage" value={matrix.cells.length ? percent(heard / matrix.cells.length) : "unknown"} tone={!matrix.cells.length ? "unknown" : heard < matrix.cells.length ? "bad" : ""}
    note={matrix.cells.length ? `${percent(sent ? lost / sent : null)} of ${count(sent)} probes lost` : "No row of that time is kept."} />;
}

function ClocksThen({ history }: { history: ClockHistory | undefined }) {
  if (!history) return <Stat label="Clocks" value="–" />;
  const newest = new Map(history.samples.map((each) => [each.node, each]));
  const good = [...newest.values()].filter((each) => each.state === "SYNCHRONIZED");
  const bounds = good.map((each) => each.bound_ns).filter((each): each is number => each !== null);
  return <Stat label="Clocks synchronized" value={newest.size ? <>{good.length}<span class="muted"> / {newest.size}</span></> : "unknown"} tone={!newest.size ? "unknown" : good.length < newest.size ? "warn" : ""}
    note={bounds.length ? `largest bound ${duration(Math.max(...bounds))}` : "No clock of that time is kept."} />;
}

/** What changed within minutes of it, newest first. */
function Around({ at, since, incidents }: { at: number; since: number; incidents: Incidents | undefined }) {
  const window = { window_ns: Math.round(since) };
  const changes = useQuery<{ changes: Change[] }>("changes", { ...window, limit: 1000 });
  const fabric = useQuery<{ changes: FabricChange[] }>("fabric-changes", window);
  const paths = useQuery<{ events: PathEvent[] }>("failover-log", { window_ns: 2 * AROUND_NS, end_ns: at + AROUND_NS });
  return (
    <Panel title={`Changes within ${duration(AROUND_NS)} of ${clock(at)}`} width="w5" flush>
      <Loaded answer={changes}>
        {(data) => <ChangeList lines={merged(data.changes, fabric.data?.changes ?? [], paths.data?.events ?? [], incidents, at - AROUND_NS).filter((each) => each.at_ns <= at + AROUND_NS)} empty={<Empty what="Nothing changed." />} />}
      </Loaded>
    </Panel>
  );
}
