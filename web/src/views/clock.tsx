/** Clock: state, offset, drift and bound of every clock, and one clock over time. */
import { useRef } from "preact/hooks";
import { bound } from "../clocks";
import { drift, duration, many } from "../format";
import type { ClockHistory, Clocks, ClockTruth, ClockTruths } from "../messages";
import { Plot, SERIES } from "../plot";
import { useQuery } from "../query";
import { choiceOf, href, type Route, setQuery } from "../route";
import { Badge, Choice, Empty, Head, Loaded, Name, Panel, Stat, Table } from "../ui";

const WINDOWS = [["10m", "10 min"], ["1h", "1 h"], ["6h", "6 h"], ["1d", "24 h"]] as const;
const LENGTH: Record<string, number> = { "10m": 600e9, "1h": 3600e9, "6h": 21_600e9, "1d": 86_400e9 };
const POINTS = 300;
const MOST = 8;

export function ClockView({ route }: { route: Route }) {
  const answer = useQuery<Clocks>("clock", {}, { every: 5_000 });
  const node = route.path[1] ?? "";
  const window = choiceOf(route.query["window"], WINDOWS, "10m");
  return (
    <>
      <Head title={node ? <><span class="crumb"><a href="#/clock">Clock</a> / </span>{node}</> : "Clock"}>
        <Choice label="How far back" value={window} options={WINDOWS} pick={(value) => setQuery({ window: value })} />
      </Head>
      <div class="stack">
        <Loaded answer={answer}>
          {(data) => data.timelines.length
            ? <div class="grid"><Summary clocks={data} /></div>
            : <Empty what="No clock has been solved yet." next="Fleet time begins when two agents have exchanged probes for a few seconds." />}
        </Loaded>
        <Truth node={node} />
        <History node={node} length={LENGTH[window] ?? 600e9} />
        <Panel title="Clocks" flush>
          <Loaded answer={answer}>
            {(data) => (
              <Table label="Clocks" rows={data.timelines} key_={(each) => each.node} rowClass={(each) => (each.node === node ? "chosen" : "")} columns={[
                { title: "Clock", cell: (each) => <Name to={href(["clock", each.node], route.query)}>{each.node}</Name>, sort: (each) => each.node },
                { title: "State", cell: (each) => <><Badge word={each.state} />{each.reason && <span class="note"> {each.reason}</span>}</>, sort: (each) => each.state },
                { title: "Bound of error", num: true, cell: (each) => (bound(each) === null ? <Badge word="unknown">unbounded</Badge> : `± ${duration(bound(each))}`), sort: bound },
                { title: "Offset to fleet time", num: true, cell: (each) => duration(each.offset_ns), sort: (each) => each.offset_ns },
                { title: "Drift", num: true, cell: (each) => drift(each.drift_ppb), sort: (each) => each.drift_ppb },
                { title: "Random error, 1σ", num: true, cell: (each) => duration(each.sigma_ns), sort: (each) => each.sigma_ns },
                { title: "Asymmetry at most", num: true, cell: (each) => duration(each.asymmetry_ns), sort: (each) => each.asymmetry_ns },
                { title: "Part", cell: (each) => <Name>{each.component}</Name>, sort: (each) => each.component },
              ]} />
            )}
          </Loaded>
        </Panel>
      </div>
    </>
  );
}

/** From the slowest to the fastest clock; a unit that both share stands once. */
function driftRange(drifts: number[]): string {
  const [low = "", high = ""] = [Math.min(...drifts), Math.max(...drifts)].map(drift);
  return low.slice(-3) === high.slice(-3) ? `${low.slice(0, -4)} … ${high}` : `${low} … ${high}`;
}

function Summary({ clocks }: { clocks: Clocks }) {
  const states = new Map<string, number>();
  for (const line of clocks.timelines) states.set(line.state, (states.get(line.state) ?? 0) + 1);
  const bounds = clocks.timelines.map(bound);
  const known = bounds.filter((each) => each !== null).sort((a, b) => a - b);
  const parts = new Set(clocks.timelines.map((each) => each.component)).size;
  const drifts = clocks.timelines.map((each) => each.drift_ppb);
  return (
    <>
      <Stat label="States" value={<span class="row">{[...states].map(([state, n]) => <Badge key={state} word={state}>{n} {state.toLowerCase()}</Badge>)}</span>} note={many(clocks.timelines.length, "clock")} />
      <Stat label="Largest bound" value={known.length < bounds.length ? "unbounded" : duration(known.at(-1))} tone={known.length < bounds.length ? "unknown" : ""} note={`median ${duration(known[known.length >> 1])}`} />
      <Stat label="Drift" value={driftRange(drifts)} note="of free-running clocks against fleet time" />
      <Stat label="Comparable parts" value={parts} tone={parts > 1 ? "warn" : ""} note={parts > 1 ? "Parts cannot be compared." : clocks.utc ? "Fleet time is held to UTC." : "Fleet time is its own, not UTC."} />
    </>
  );
}

const KEPT = 720;

/** In a lab the truth is known: errors since the page was opened, beside the bounds told with them. */
function Truth({ node }: { node: string }) {
  const answer = useQuery<ClockTruths>("clock-truth", {}, { every: 5_000 });
  const seen = useRef<{ at: number; clocks: ClockTruth[] }[]>([]);
  if (!answer.data?.clocks.length) return null;
  if (seen.current.at(-1)?.at !== answer.at) seen.current = [...seen.current, { at: answer.at, clocks: answer.data.clocks }].slice(-KEPT);
  const shown = answer.data.clocks.filter((each) => !node || each.host === node).slice(0, MOST);
  const beyond = answer.data.clocks.filter((each) => each.error_ns !== null && each.bound_ns !== null && Math.abs(each.error_ns) > each.bound_ns).length;
  const value = (clocks: ClockTruth[], host: string, pick: (each: ClockTruth) => number | null) => { const found = clocks.find((each) => each.host === host); return found ? pick(found) : null; };
  return (
    <Panel title={<>Error against truth <span class="crumb">a lab knows it; since this page was opened</span></>} tools={<Badge word="" tone={beyond ? "bad" : "ok"}>{beyond ? `${many(beyond, "clock")} beyond the bound` : "every error within its bound"}</Badge>}>
      <Plot label="True error of each clock over time" times={seen.current.map((each) => each.at * 1e6)} show={duration} lines={[
        ...shown.map((clock, n) => ({ label: clock.host, values: seen.current.map((each) => value(each.clocks, clock.host, (found) => found.error_ns)), colour: SERIES[n % SERIES.length] ?? "accent" })),
        ...(node ? [1, -1].map((sign) => ({ label: sign > 0 ? "bound" : "− bound", values: seen.current.map((each) => value(each.clocks, node, (found) => found.bound_ns === null ? null : sign * found.bound_ns)), colour: "line-strong", dash: true })) : []),
      ]} />
    </Panel>
  );
}

function History({ node, length }: { node: string; length: number }) {
  const step = Math.max(1e9, Math.round(length / POINTS));
  const answer = useQuery<ClockHistory>("clock-history", { node, window_ns: length, step_ns: step }, { every: Math.max(5_000, step / 1e6) });
  return (
    <Loaded answer={answer}>
      {(data) => {
        if (!data.samples.length) return <Empty what="Nothing is stored of that time." next="Choose a longer time above." />;
        const series = byNode(data, node ? 1 : MOST);
        const times = [...new Set(data.samples.map((each) => Math.round(each.ts_ns / data.step_ns) * data.step_ns))].sort((a, b) => a - b);
        const line = (pick: (each: ClockHistory["samples"][number]) => number | null) => series.map(([name, samples], n) => {
          const at = new Map(samples.map((each) => [Math.round(each.ts_ns / data.step_ns) * data.step_ns, pick(each)]));
          return { label: name, values: times.map((time) => at.get(time) ?? null), colour: SERIES[n % SERIES.length] ?? "accent", dash: n >= SERIES.length };
        });
        const note = series.length < new Set(data.samples.map((each) => each.node)).size ? ` (the ${series.length} with the largest)` : "";
        return (
          <div class="grid">
            <Panel title={`Bound of error${note}`} width="w6"><Plot label="Bound of the error over time" times={times} span={length} lines={line((each) => each.bound_ns)} show={duration} log /></Panel>
            <Panel title="Drift against fleet time" width="w6"><Plot label="Drift over time" times={times} span={length} lines={line((each) => each.drift_ppb)} show={drift} /></Panel>
          </div>
        );
      }}
    </Loaded>
  );
}

/** Samples by clock, those with the largest bound first. */
function byNode(data: ClockHistory, most: number): [string, ClockHistory["samples"]][] {
  const found = new Map<string, ClockHistory["samples"]>();
  for (const each of data.samples) {
    const samples = found.get(each.node);
    if (samples) samples.push(each);
    else found.set(each.node, [each]);
  }
  const largest = (samples: ClockHistory["samples"]) => samples.at(-1)?.bound_ns ?? Infinity;
  return [...found].sort((a, b) => largest(b[1]) - largest(a[1])).slice(0, most).sort((a, b) => (a[0] < b[0] ? -1 : 1));
}
