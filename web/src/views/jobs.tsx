/** Jobs: list, and one job: why it is slow, its course over time, its flows, worst first. */
import { useMemo } from "preact/hooks";
import { ago, count, duration, instant, many, percent, rate } from "../format";
import type { FlowLine, Incident, Incidents, JobReport, Jobs, JobView, Move, PathEvent, Takeover, Verdict } from "../messages";
import { type Mark, marksOf } from "../marks";
import { Plot } from "../plot";
import { useQuery } from "../query";
import { choiceOf, href, instantOf, type Route, setQuery } from "../route";
import { Badge, Choice, Empty, Head, Loaded, Name, Panel, Table } from "../ui";
import { causes, IncidentTable } from "./incidents";

const ENDED_NS = 10e9;
const LISTED = [["1h", "1 h"], ["1d", "24 h"], ["7d", "7 d"]] as const;
const WINDOWS = [["30s", "30 s"], ["2m", "2 min"], ["10m", "10 min"]] as const;
const LENGTH: Record<string, number> = { "30s": 30e9, "2m": 120e9, "10m": 600e9, "1h": 3600e9, "1d": 86_400e9, "7d": 604_800e9 };

export const stateOf = (job: JobView, nowNs: number): string => (job.running <= 0 ? "ended" : nowNs - job.seen_ns < ENDED_NS ? "running" : "silent");

export function JobsView({ route }: { route: Route }) {
  const job = route.path[1];
  return job ? <One key={job} job={job} route={route} /> : <List route={route} />;
}

function List({ route }: { route: Route }) {
  const window = choiceOf(route.query["window"], LISTED, "1h");
  const answer = useQuery<Jobs>("jobs", { window_ns: LENGTH[window] }, { on: ["jobs"], every: 15_000 });
  return (
    <>
      <Head title="Jobs"><Choice label="How far back" value={window} options={LISTED} pick={(value) => setQuery({ window: value })} /></Head>
      <Panel title="Jobs that had a process in that time" flush>
        <Loaded answer={answer}>
          {(data) => <Table label="Jobs" rows={data.jobs} key_={(each) => each.job}
            empty={<Empty what="No job ran in that time." next={<>Start one with <code>syntony run --job NAME -- COMMAND</code>; nothing else changes for it.</>} />}
            columns={[
              { title: "Job", cell: (each) => <Name to={href(["jobs", each.job])}>{each.job}</Name>, sort: (each) => each.job },
              { title: "State", cell: (each) => <Badge word={stateOf(each, data.now_ns)} />, sort: (each) => stateOf(each, data.now_ns) },
              { title: "Ranks", num: true, cell: (each) => each.ranks || "unknown", sort: (each) => each.ranks },
              { title: "Spares", num: true, cell: (each) => <span class={each.spares === 0 ? "warn" : ""}>{each.spares ?? <span class="note">unprotected</span>}</span>, sort: (each) => each.spares ?? -1 },
              { title: "Generation", num: true, cell: (each) => each.generation ?? "", sort: (each) => each.generation ?? -1 },
              { title: "Replaced", num: true, cell: (each) => (each.generation === null && !each.replaced ? "" : count(each.replaced)), sort: (each) => each.replaced },
              { title: "Processes", num: true, cell: (each) => `${each.running} of ${each.processes}`, sort: (each) => each.processes },
              { title: "Hosts", cell: (each) => <span class="nowrap" title={each.hosts.join(", ")}>{each.hosts.slice(0, 4).join(", ")}{each.hosts.length > 4 && ` and ${each.hosts.length - 4} more`}</span> },
              { title: "Age", num: true, cell: (each) => duration(Math.max(0, data.now_ns - each.began_ns)), sort: (each) => data.now_ns - each.began_ns },
              { title: "Last seen", num: true, cell: (each) => ago(each.seen_ns, data.now_ns), sort: (each) => -each.seen_ns },
              { title: "Programs", cell: (each) => <span class="mono">{each.programs.join(", ")}</span> },
            ]} />}
        </Loaded>
      </Panel>
    </>
  );
}

function One({ job, route }: { job: string; route: Route }) {
  const window = choiceOf(route.query["window"], WINDOWS, "2m");
  const end = instantOf(route.query["end"]);
  const answer = useQuery<JobReport>("job-report", { job, window_ns: LENGTH[window] ?? 120e9, end_ns: end || undefined }, end ? {} : { on: ["jobs"], every: 30_000 });
  return (
    <>
      <Head title={<><span class="crumb"><a href="#/jobs">Jobs</a> / </span><span class="mono">{job}</span></>}>
        {end > 0 && <><span class="note">until {instant(end)}</span><button type="button" onClick={() => setQuery({ end: undefined })}>Now</button></>}
        <Choice label="Window" value={window} options={WINDOWS} pick={(value) => setQuery({ window: value })} />
        <button type="button" onClick={answer.reload} disabled={answer.loading}>Look again</button>
      </Head>
      {answer.data === undefined && answer.problem && !answer.problem.offline
        ? <Panel title="Why"><Empty what={answer.problem.message} next={<>Choose a longer window, or see <a href="#/jobs">jobs of the last hours</a>.</>} /></Panel>
        : <Loaded answer={answer}>{(data) => <Report report={data} route={route} />}</Loaded>}
    </>
  );
}

function Report({ report, route }: { report: JobReport; route: Route }) {
  const incidents = useQuery<Incidents>("incidents", { since_ns: 3600e9 }, { on: ["incidents"] });
  const mine = causes(incidents.data?.incidents ?? []).filter((each) => each.jobs.includes(report.job) || each.subject === `job ${report.job}`);
  const marks = useMarks(report, mine);
  const [first, ...rest] = report.sentences;
  return (
    <div class="stack">
      <Panel title="Why" tools={<span class="note">{instant(report.begin_ns)} – {instant(report.end_ns).slice(11)}</span>}>
        <p><strong>{first}</strong></p>
        {rest.map((sentence) => <p key={sentence}>{sentence}</p>)}
        {report.verdicts.map((verdict, n) => <VerdictBox key={n} verdict={verdict} open={n === 0} />)}
        {report.notes.length > 0 && <details><summary>{many(report.notes.length, "note")} on what was not recorded</summary><ul class="evidence note">{report.notes.map((note) => <li key={note}>{note}</li>)}</ul></details>}
      </Panel>
      {report.takeovers.length > 0 && <LostRanks takeovers={report.takeovers} />}
      <Course report={report} marks={marks} flow={route.query["flow"] ?? ""} />
      {mine.length > 0 && <Panel title="Incidents that hit it" flush><IncidentTable incidents={mine} all={incidents.data?.incidents ?? []} /></Panel>}
      <Flows report={report} chosen={route.query["flow"] ?? ""} />
    </div>
  );
}

/** Faults, takeovers, failovers and moves within the window, for the charts. */
function useMarks(report: JobReport, incidents: readonly Incident[]): Mark[] {
  const log = useQuery<{ events: PathEvent[] }>("failover-log", { job: report.job, window_ns: report.end_ns - report.begin_ns, end_ns: report.end_ns }, { on: ["incidents", "jobs"] });
  const moves = useQuery<{ moves: Move[] }>("moves", { job: report.job }, { on: ["jobs"] });
  const numbers = incidents.map((each) => each.number).join();
  return useMemo(() => marksOf(report, log.data?.events ?? [], moves.data?.moves ?? [], incidents), [report, log.data, moves.data, numbers]);
}

function VerdictBox({ verdict, open }: { verdict: Verdict; open: boolean }) {
  const radius = verdict.blast_radius;
  return (
    <details open={open}>
      <summary><Badge word={verdict.class} tone={verdict.class === "undetermined" ? "unknown" : "bad"} /> <span class="mono">{verdict.subjects.join(" or ")}</span> <span class="note">{percent(verdict.confidence)} sure, since {instant(verdict.onset_ns).slice(11)}{verdict.end_ns ? `, over at ${instant(verdict.end_ns).slice(11)}` : ""}</span></summary>
      <div class="grid">
        <div class="w6"><h3>Evidence</h3><ul class="evidence">{verdict.evidence.map((each) => <li key={each.text}>{each.text} <span class="note mono">{each.signal}</span></li>)}</ul></div>
        <div class="w6"><h3>What else was looked at</h3><ul class="evidence">{verdict.alternatives.map((each) => <li key={each.class}><strong>{each.class}</strong> {each.excluded ? "ruled out" : "could not be ruled out"}: {each.reason}</li>)}</ul></div>
        <p class="w12 note">To do: {verdict.action}. Touches {radius.hosts.join(", ") || "no host that is known"}{radius.ranks > 0 && `; ${many(radius.ranks, "rank")} wait`}{radius.slowdown !== null && `; steps take ${radius.slowdown.toFixed(2)} times as long`}{radius.gpu_hours !== null && `; ${radius.gpu_hours.toFixed(2)} GPU-hours lost`}.</p>
      </div>
    </details>
  );
}

function LostRanks({ takeovers }: { takeovers: Takeover[] }) {
  return (
    <Panel title="Lost ranks and what became of them" flush>
      <Table label="Lost ranks" rows={[...takeovers].reverse()} columns={[
        { title: "When", cell: (each) => instant(each.ts_ns).slice(11), sort: (each) => each.ts_ns },
        { title: "What", cell: (each) => <Badge word={each.what} /> },
        { title: "Rank", num: true, cell: (each) => (each.rank < 0 ? "all" : each.rank), sort: (each) => each.rank },
        { title: "Why", cell: (each) => each.reason },
        { title: "Lost on", cell: (each) => each.at, sort: (each) => each.at },
        { title: "Held since by", cell: (each) => <span class="mono">{each.worker}</span> },
        { title: "Step", num: true, cell: (each) => (each.step < 0 ? "" : count(each.step)) },
        { title: "Generation", num: true, cell: (each) => each.generation },
        { title: "Stood still", num: true, cell: (each) => (each.what === "replaced" ? duration(each.stall_ns) : ""), sort: (each) => each.stall_ns },
      ]} />
    </Panel>
  );
}

function Course({ report, marks, flow }: { report: JobReport; marks: Mark[]; flow: string }) {
  const delays = report.delays.find((each) => each.flow === flow) ?? report.delays[0];
  return (
    <div class="grid">
      <Panel title="Throughput, all flows" width="w6">
        {report.at_ns.length ? <Plot label="Throughput of all flows" times={report.at_ns} lines={[{ label: "rate", values: report.rate_bps, fill: true }]} show={rate} marks={marks} /> : <Empty what="No flow was recorded." next="Flows are recorded where traffic control observes or acts." />}
      </Panel>
      <Panel title="Step time, slowest rank" width="w6">
        {report.steps_at_ns.length ? <Plot label="Step time" times={report.steps_at_ns} lines={[{ label: "step", values: report.steps_ns, colour: "info" }]} show={duration} marks={marks} /> : <Empty what="No step was recorded." next={<>The job's hook for PyTorch tells steps: <code>syntony run</code> sets it.</>} />}
      </Panel>
      {report.resent.some((each) => each) && (
        <Panel title="Segments sent again, all flows" width="w12">
          <Plot label="Segments sent again" times={report.at_ns} height={120} lines={[{ label: "sent again", values: report.resent, colour: "warn", fill: true }]} show={(value) => count(Math.round(value))} marks={marks} />
        </Panel>
      )}
      {delays && (
        <Panel title={<>Delay in band beside out of band <span class="crumb mono">{delays.flow}</span></>} width="w12" tools={<label>Flow <select value={delays.flow} onChange={(event) => setQuery({ flow: event.currentTarget.value })}>{report.delays.map((each) => <option key={each.flow}>{each.flow}</option>)}</select></label>}>
          <Plot label={`Delay of ${delays.flow}`} times={report.at_ns} height={200} show={duration} log marks={marks} lines={[
            { label: "in band: its own packets", values: delays.in_band_ns, colour: "warn" },
            { label: "out of band: probes", values: delays.out_of_band_ns, colour: "accent", dash: true },
          ]} />
        </Panel>
      )}
    </div>
  );
}

function Flows({ report, chosen }: { report: JobReport; chosen: string }) {
  const most = report.flows.reduce((value, each) => Math.max(value, inBand(each) ?? 0), 1);
  return (
    <Panel title={`Flows, worst first (${count(report.flows.length + report.flows_left_out)})`} flush>
      <Table label="Flows" rows={report.flows} key_={(each) => each.flow} rowClass={(each) => (each.flow === chosen ? "chosen" : "")}
        empty={<Empty what="No flow was recorded." next="Is traffic control off? Observing is enough." />} columns={[
          { title: "Flow", cell: (each) => <Name to={href(["jobs", report.job], { flow: each.flow })}>{each.flow}</Name>, sort: (each) => each.flow },
          { title: "In band", num: true, cell: (each) => <span class={(inBand(each) ?? 0) > most / 3 && most > 10e6 ? "bad" : ""} title={each.one_way_why}>{duration(inBand(each))}</span>, sort: inBand },
          { title: "Worst", num: true, cell: (each) => duration(each.worst_one_way_ns ?? each.worst_in_band_ns), sort: (each) => each.worst_one_way_ns ?? each.worst_in_band_ns },
          { title: "Out of band", num: true, cell: (each) => duration(each.probed_one_way_ns ?? each.out_of_band_ns), sort: (each) => each.probed_one_way_ns ?? each.out_of_band_ns },
          { title: "How", cell: (each) => <span class="note">{each.one_way_ns !== null ? "one way" : "half of round trip"}</span> },
          { title: "Rate", num: true, cell: (each) => rate(each.rate_bps), sort: (each) => each.rate_bps },
          { title: "Sent again", num: true, cell: (each) => (each.retransmits === null ? "unknown" : count(Math.round(each.retransmits))), sort: (each) => each.retransmits },
          { title: "Path", cell: (each) => <span class="note mono">{each.hops.join(" ")}</span> },
        ]} />
      {report.flows_left_out > 0 && <p class="body note">{count(report.flows_left_out)} more flows with shorter delays are not shown.</p>}
    </Panel>
  );
}

const inBand = (each: FlowLine) => each.one_way_ns ?? each.in_band_ns;
