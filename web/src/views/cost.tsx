/** Cost: the economics of failure, with the numbers and assumptions of `syntony cost`. */
import { useState } from "preact/hooks";
import { count, digits, duration, many, percent } from "../format";
import { useQuery } from "../query";
import { numberOf, type Route, setQuery } from "../route";
import { Badge, Empty, Head, Loaded, Panel, ProblemBox, Stat, Table } from "../ui";

const [MINUTE_NS, HOUR_NS] = [60e9, 3600e9];

interface Interval { low: number; high: number }
interface Loss { gpu_hours_per_month: Interval; share: Interval; price_per_month: Interval | null }
interface CostReport {
  assumed: Record<string, number>;
  restarts_per_year: Interval; mttf_ns: Interval; first_link_failure_ns: number; gpu_hours_per_failure: number;
  engineer_hours_per_month: Interval; today: Loss; with_syntony: Loss;
  observed: { period_ns: number; network: number; hosts: number; other: number; per_year: number } | null;
}

/** Name in the address, of the parameter, label, default, and the parameter's units in one of the field's. */
const FIELDS = [
  ["gpus", "gpus", "GPUs", 1024, 1], ["checkpoint", "checkpoint_ns", "Time between checkpoints, hours", 2, 3600e9], ["lost", "lost_share", "Share of it that a failure loses, 0 to 1", 1, 1],
  ["recovery", "recovery_ns", "Recovery, minutes", 30, 60e9], ["price", "price", "Price of a GPU-hour (0: not shown)", 0, 1], ["links", "links", "Links (0: one a GPU)", 0, 1],
  ["takeover", "takeover_ns", "A spare replaces a lost rank in, seconds (0: no spares)", 0, 1e9], ["history", "history_ns", "Count this fleet's incidents of the last, days", 90, 86_400e9],
] as const;

export function Cost({ route }: { route: Route }) {
  const given = FIELDS.map(([name, , , usual]) => numberOf(route.query[name], usual));
  const params = Object.fromEntries(FIELDS.map(([, field, , , unit], n) => [field, Math.abs(unit) > 1 ? Math.round((given[n] ?? 0) * unit) : given[n] ?? 0]));
  const answer = useQuery<CostReport>("cost", params);
  return (
    <>
      <Head title="Cost of failure"><span class="note">The same by command: <code>syntony cost --gpus {given[0]}</code></span></Head>
      <div class="grid">
        <Panel title="Assumptions" width="w4"><Assumptions given={given} /></Panel>
        <div class="stack w8"><Loaded answer={answer}>{(data) => <Report report={data} />}</Loaded></div>
        <Sizes params={params} />
      </div>
    </>
  );
}

function Assumptions({ given }: { given: number[] }) {
  const [problem, setProblem] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const wrong = FIELDS.find(([name]) => !(Number(fields.get(name)) >= 0));
    setProblem(wrong ? `${wrong[2]}: give a number of 0 or more.` : "");
    if (!wrong) setQuery(Object.fromEntries(FIELDS.map(([name]) => [name, String(fields.get(name))])));
  };
  return (
    <form class="stack" onSubmit={submit}>
      {FIELDS.map(([name, , label], n) => <label class="field" key={name}>{label}<input name={name} type="number" min="0" step="any" required value={given[n] ?? 0} /></label>)}
      {problem && <div class="problem" role="alert">{problem}</div>}
      <button class="primary" type="submit">Compute</button>
    </form>
  );
}

const between = ({ low, high }: Interval, show: (value: number) => string) => (low === high ? show(low) : `${show(low)} – ${show(high)}`);
const hours = (value: number) => `${digits(value)} h`;
/** A time to failure: both ends of an interval in one unit. */
const times = ({ low, high }: Interval) => {
  const [unit, name] = low >= 2 * HOUR_NS ? [HOUR_NS, "h"] : [MINUTE_NS, "min"];
  return `${between({ low, high }, (ns) => digits(ns / unit))} ${name}`;
};

function Report({ report }: { report: CostReport }) {
  const priced = report.today.price_per_month !== null;
  const rows: [string, Loss][] = [["Today: every failure restarts the job", report.today], ["With Syntony's measured recovery", report.with_syntony]];
  return (
    <>
      <div class="grid">
        <Stat label="Restarts a year" value={between(report.restarts_per_year, (value) => count(Math.round(value)))} note={many(report.assumed["gpus"] ?? 0, "GPU")} />
        <Stat label="Mean time to failure" value={times(report.mttf_ns)} note="worst and best case" />
        <Stat label="One failure loses" value={<>{count(Math.round(report.gpu_hours_per_failure))} <span class="muted">GPU-h</span></>} note="work and recovery" />
        <Stat label="First link fails after" value={times({ low: report.first_link_failure_ns, high: report.first_link_failure_ns })} note="mean of many fleets" />
      </div>
      <Panel title="What failures take" flush>
        <Table label="What failures take" rows={rows} columns={[
          { title: "", cell: ([name]) => name },
          { title: "GPU-hours a month", num: true, cell: ([, loss]) => between(loss.gpu_hours_per_month, (value) => count(Math.round(value))) },
          { title: "Of all GPU time", num: true, cell: ([, loss]) => between(loss.share, percent) },
          ...(priced ? [{ title: "Price a month", num: true, cell: ([, loss]: [string, Loss]) => (loss.price_per_month ? between(loss.price_per_month, (value) => count(Math.round(value))) : "unknown") }] : []),
        ]} />
        <p class="body note">People: {between(report.engineer_hours_per_month, hours)} a month. The sources of the defaults are in the reference of <code>syntony cost</code>.</p>
      </Panel>
      <Panel title="This fleet's own incidents">
        {report.observed
          ? <dl class="facts">
              <dt>Counted over</dt><dd>{duration(report.observed.period_ns)}</dd>
              <dt>Network</dt><dd>{count(report.observed.network)}</dd><dt>Hosts</dt><dd>{count(report.observed.hosts)}</dd><dt>Other</dt><dd>{count(report.observed.other)}</dd>
              <dt>A year</dt><dd>{digits(report.observed.per_year)} of network and hosts <Badge word="" tone="info">measured</Badge></dd>
              <dt /><dd class="note">An upper bound of what stopped jobs: not every incident has a job across it. A fleet that was watched for less than {duration(report.observed.period_ns)} looks better than it is.</dd>
            </dl>
          : <Empty what="Not counted." next="Set the days of own incidents to more than 0." />}
      </Panel>
    </>
  );
}

const SIZES = [256, 512, 1_024, 10_000, 50_000, 100_000] as const;

/** The same assumptions at other numbers of GPUs. */
function Sizes({ params }: { params: Record<string, number> }) {
  const rest = { ...params, links: 0, history_ns: 0 };
  const answers = SIZES.map((gpus) => useQuery<CostReport>("cost", { ...rest, gpus }));
  const rows = answers.flatMap(({ data }) => (data ? [data] : []));
  const problem = answers.find((each) => each.problem)?.problem;
  if (!rows.length) return problem ? <ProblemBox problem={problem} /> : null;
  return (
    <Panel title={<>By number of GPUs <span class="crumb">the other assumptions as above, one link a GPU</span></>} flush>
      <Table label="By number of GPUs" rows={rows} columns={[
        { title: "GPUs", num: true, cell: (each) => count(each.assumed["gpus"]) },
        { title: "Restarts a year", num: true, cell: (each) => between(each.restarts_per_year, (value) => count(Math.round(value))) },
        { title: "Time to failure", num: true, cell: (each) => times(each.mttf_ns) },
        { title: "First link fails after", num: true, cell: (each) => times({ low: each.first_link_failure_ns, high: each.first_link_failure_ns }) },
        { title: "GPU-hours a failure", num: true, cell: (each) => count(Math.round(each.gpu_hours_per_failure)) },
        { title: "Of all GPU time today", num: true, cell: (each) => between(each.today.share, percent) },
        { title: "With Syntony", num: true, cell: (each) => between(each.with_syntony.share, percent) },
      ]} />
    </Panel>
  );
}
