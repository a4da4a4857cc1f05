/** Traffic: the stop switch, modes, failovers and moves with cause and effect, connections, flows. */
import { useMemo, useRef, useState } from "preact/hooks";
import { order } from "../api";
import { byNics, causesIn, doneIn, doneOf, type Episode, episodesOf, nicsOf, pathOf } from "../episodes";
import { byName, clock, count, duration, instant, many, percent, rate } from "../format";
import type { FailoverStatus, HostPaths, Move, PathEvent, Traffic } from "../messages";
import { useQuery } from "../query";
import { choiceOf, href, instantOf, type Route, setQuery } from "../route";
import { useBy, useOperator } from "../session";
import { Badge, Choice, Dialog, Empty, Head, Loaded, Name, Panel, Table } from "../ui";

const LISTED = [["1h", "1 h"], ["1d", "24 h"], ["7d", "7 d"]] as const;
const LENGTH: Record<string, number> = { "1h": 3600e9, "1d": 86_400e9, "7d": 604_800e9 };

export function TrafficView({ route }: { route: Route }) {
  const window = choiceOf(route.query["window"], LISTED, "1h");
  const status = useQuery<FailoverStatus>("failover-status", {}, { on: ["switch"], every: 10_000 });
  const traffic = useQuery<Traffic>("traffic", {}, { on: ["jobs", "switch"], every: 5_000 });
  return (
    <>
      <Head title="Traffic"><Choice label="How far back" value={window} options={LISTED} pick={(value) => setQuery({ window: value, end: undefined })} /></Head>
      <div class="grid">
        <Switch answer={status} />
        <Policy name="placement" title="Placement: off crowded paths" mode={traffic.data?.mode} why={traffic.data && !traffic.data.deciding ? traffic.data.why : ""} done={traffic.reload} />
        <Policy name="pacing" title="Pacing: senders' shares" mode={traffic.data?.pacing} why="" done={traffic.reload} />
        <Log window={LENGTH[window] ?? 3600e9} route={route} />
        <Moves />
        <Connections />
        <Loads answer={traffic} />
      </div>
    </>
  );
}

const DOING: Record<string, string> = { act: "Acting", observe: "Observing", stopped: "Stopped", off: "Off" };

function Switch({ answer }: { answer: ReturnType<typeof useQuery<FailoverStatus>> }) {
  const operator = useOperator();
  const by = useBy();
  const [open, setOpen] = useState(false);
  const stopped = answer.data?.switch?.stopped ?? false;
  const modes = new Map<string, string[]>();
  for (const each of answer.data?.hosts ?? []) {
    const mode = each.report.stopped ? "stopped" : each.report.mode;
    modes.set(mode, [...(modes.get(mode) ?? []), each.host]);
  }
  return (
    <Panel title="Stop switch" width="w4" tools={answer.data && <Badge word={stopped ? "stopped" : "armed"} tone={stopped ? "bad" : "ok"} />}>
      <Loaded answer={answer}>
        {(data) => (
          <div class="stack">
            <dl class="facts">
              <dt>Last thrown</dt><dd>{data.switch ? `${instant(data.switch.at_ns)} by ${data.switch.by}` : "never"}</dd>
              {[...modes].map(([mode, hosts]) => <><dt>{DOING[mode] ?? mode}</dt><dd title={hosts.join(", ")}>{many(hosts.length, "host")}{hosts.length <= 4 && `: ${hosts.join(", ")}`}</dd></>)}
              {!data.hosts.length && <><dt>Agents</dt><dd>None reports paths: traffic control is off, or none is connected.</dd></>}
            </dl>
            {operator
              ? <button type="button" class={stopped ? "primary" : "danger"} onClick={() => setOpen(true)}>{stopped ? "Allow traffic control again…" : "Stop all traffic control…"}</button>
              : <span class="note">Operators can throw the switch.</span>}
          </div>
        )}
      </Loaded>
      {open && (
        <Dialog title={stopped ? "Allow traffic control again" : "Stop all traffic control"} action={stopped ? "Allow" : "Stop"} danger={!stopped} close={() => setOpen(false)}
          ask={async (fields) => {
            await order("switch", { stopped: !stopped, by, why: fields.get("why") });
            answer.reload();
          }}>
          <p>{stopped ? "Agents manage paths again as they are configured." : "No agent of the fleet moves, adds or removes a path any more, until it is allowed again. Jobs go on as they are; a failed path is no longer replaced."}</p>
          <label class="field">Why<input name="why" required maxLength={200} autofocus /></label>
          <label><input type="checkbox" required /> I mean the whole fleet</label>
        </Dialog>
      )}
    </Panel>
  );
}

const MODES = [["off", "Off"], ["observe", "Observe"], ["act", "Act"]] as const;

function Policy({ name, title, mode, why, done }: { name: string; title: string; mode: string | undefined; why: string; done: () => void }) {
  const operator = useOperator();
  const by = useBy();
  const [wanted, setWanted] = useState("");
  return (
    <Panel title={title} width="w4" tools={mode && <Badge word={mode} />}>
      <p class="note">{mode === "observe" ? "It says what it would do, and changes nothing." : mode === "act" ? "It acts, one trial at a time, and takes back what does not help." : mode === "off" ? "It neither looks nor acts." : "unknown"} {why && `Not deciding: ${why}.`}</p>
      {operator && mode && <Choice label={title} value={mode as "off"} options={MODES} pick={(value) => value !== mode && setWanted(value)} />}
      {wanted && (
        <Dialog title={`${name}: ${mode} → ${wanted}`} action={`Set to ${wanted}`} danger={wanted === "act"} close={() => setWanted("")}
          ask={async (fields) => {
            await order("placement", { what: name, mode: wanted, by, why: fields.get("why") });
            done();
          }}>
          <p>It holds over restarts of the controller and is written to the audit log.</p>
          <label class="field">Why<input name="why" required maxLength={200} autofocus /></label>
        </Dialog>
      )}
    </Panel>
  );
}

const KINDS = [["all", "All"], ["failover", "Failovers"], ["return", "Joins and returns"]] as const;
const NEWEST = 1_000;
/** Instants are doubles here: so much later nothing of the page before is left out. */
const ROUNDING_NS = 1_000;

function Log({ window, route }: { window: number; route: Route }) {
  const { host = "", job = "" } = route.query;
  const kind = choiceOf(route.query["kind"], KINDS, "all");
  const end = instantOf(route.query["end"]);
  const answer = useQuery<{ events: PathEvent[] }>("failover-log", { window_ns: window, host, job, end_ns: end || undefined, limit: NEWEST }, end ? {} : { on: ["incidents", "switch", "jobs"], every: 10_000 });
  const seen = useRef({ hosts: new Set<string>(), jobs: new Set<string>() }).current;
  const episodes = useMemo(() => episodesOf(answer.data?.events ?? [], byNics), [answer.data]);
  for (const each of answer.data?.events ?? []) {
    seen.hosts.add(each.host);
    seen.jobs.add(each.job);
  }
  const oldest = answer.data && answer.data.events.length >= NEWEST ? answer.data.events[0]?.ts_ns : undefined;
  return (
    <Panel title="Failovers: cause and effect" flush tools={<>
      <Select label="Host" value={host} options={seen.hosts} pick={(value) => setQuery({ host: value, end: undefined })} />
      <Select label="Job" value={job} options={seen.jobs} pick={(value) => setQuery({ job: value, end: undefined })} />
      <Choice label="Which" value={kind} options={KINDS} pick={(value) => setQuery({ kind: value })} />
    </>}>
      <Loaded answer={answer}>
        {() => <>
          <div class="scroll"><EpisodeTable episodes={episodes.filter((each) => kind === "all" || each.kind === kind)} filtered={!!(host || job || kind !== "all")} /></div>
          {(oldest || end > 0) && <div class="body row note">
            {end > 0 && <><span>Up to {instant(end)}.</span><button type="button" onClick={() => setQuery({ end: undefined })}>Newest</button></>}
            {oldest && <><span>{count(NEWEST)} changes are shown, back to {instant(oldest)}.</span><button type="button" onClick={() => setQuery({ end: oldest + ROUNDING_NS })}>Older</button></>}
          </div>}
        </>}
      </Loaded>
    </Panel>
  );
}

function Select({ label, value, options, pick }: { label: string; value: string; options: ReadonlySet<string>; pick: (value: string) => void }) {
  const names = [...new Set([...options, value])].filter(Boolean).sort(byName);
  return <label>{label} <select value={value} onChange={(event) => pick(event.currentTarget.value)}><option value="">all</option>{names.map((each) => <option key={each}>{each}</option>)}</select></label>;
}

const newestOf = (each: Episode) => each.events[0] as PathEvent;
const slowest = (each: Episode, of: (event: PathEvent) => number) => Math.max(...each.events.map(of)) || null;

function EpisodeTable({ episodes, filtered }: { episodes: Episode[]; filtered: boolean }) {
  const time = (title: string, of: (event: PathEvent) => number) => ({
    title, num: true, cell: (each: Episode) => { const found = slowest(each, of); return found === null ? "–" : <span title={each.events.length > 1 ? "the slowest" : ""}>{duration(found)}</span>; }, sort: (each: Episode) => slowest(each, of),
  });
  return <Table label="Failovers" rows={episodes} key_={(each) => each.key}
    empty={filtered
      ? <Empty what="No such change of a path in that time." next="Choose another host, job or kind, or look further back." />
      : <Empty what="No path was changed in that time." next={<>Connections of jobs under <code>syntony run</code> are kept alive when a path fails; each change appears here with its cause.</>} />}
    columns={[
      { title: "Last", cell: (each) => <><span class="nowrap">{instant(newestOf(each).ts_ns)}</span>{each.events.length > 1 && <div class="note">since {clock(each.events.at(-1)?.ts_ns ?? 0)}</div>}</>, sort: (each) => newestOf(each).ts_ns },
      { title: "Host", cell: (each) => <Name to={href(["fabric", newestOf(each).host])}>{newestOf(each).host}</Name>, sort: (each) => newestOf(each).host },
      { title: "Job", cell: (each) => newestOf(each).job && <Name to={href(["jobs", newestOf(each).job])}>{newestOf(each).job}</Name>, sort: (each) => newestOf(each).job },
      { title: "Cause", cell: (each) => <>{causesIn(each)}<div class="note">{newestOf(each).evidence}</div></> },
      { title: "Done", cell: (each) => <Done episode={each} /> },
      { title: "Path", cell: (each) => <span class="note mono">{each.events.length > 1 ? nicsOf(pathOf(newestOf(each))) : pathsOf(newestOf(each))}</span> },
      { title: "Changes", num: true, cell: (each) => count(each.events.length), sort: (each) => each.events.length },
      time("Noticed in", (event) => event.detect_ns), time("Acted in", (event) => event.act_ns),
    ]} />;
}

const pathsOf = (event: PathEvent) => [event.old_path, event.new_path].filter(Boolean).join(" → ");
const LISTED_EACH = 200;

/** What an episode did, and each change of it when it is opened. */
function Done({ episode }: { episode: Episode }) {
  const [open, setOpen] = useState(false);
  const results = [...new Set(episode.events.map((each) => each.result).filter(Boolean))];
  const words = <>{doneIn(episode)}{results.map((each) => <> <Badge key={each} word={each} /></>)}</>;
  if (episode.events.length === 1) return words;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{words}</summary>
      {open && <ul class="evidence note">
        {episode.events.slice(0, LISTED_EACH).map((each, n) => <li key={n}>{clock(each.ts_ns)} {doneOf(each.action)} ({each.cause}) <span class="mono">{pathsOf(each)}</span> {each.evidence}{each.result && ` – ${each.result}`}</li>)}
        {episode.events.length > LISTED_EACH && <li>and {count(episode.events.length - LISTED_EACH)} earlier ones</li>}
      </ul>}
    </details>
  );
}

function Moves() {
  const answer = useQuery<{ moves: Move[] }>("moves", { limit: 200 }, { on: ["jobs", "switch"], every: 10_000 });
  return (
    <Panel title="Moves of flows: cause and effect" flush>
      <Loaded answer={answer}>
        {(data) => <div class="scroll"><Table label="Moves" rows={[...data.moves].reverse()} key_={(each) => each.move_id}
          empty={<Empty what="No flow was moved, or would have been." next="Placement looks for links that several jobs' flows fill while others are idle." />} columns={[
            { title: "When", cell: (each) => <span class="nowrap">{instant(each.ts_ns)}</span>, sort: (each) => each.ts_ns },
            { title: "Job", cell: (each) => <Name to={href(["jobs", each.job])}>{each.job}</Name>, sort: (each) => each.job },
            { title: "Flow", cell: (each) => <span class="mono">{each.flow}</span> },
            { title: "Cause", cell: (each) => <>{each.cause}<div class="note">{each.evidence}</div></> },
            { title: "Result", cell: (each) => <Badge word={each.result} /> },
            { title: "From → to", cell: (each) => <span class="note mono">{each.old} → {each.new}</span> },
            { title: "Took", num: true, cell: (each) => each.took_ns ? duration(each.took_ns) : "–", sort: (each) => each.took_ns },
          ]} /></div>}
      </Loaded>
    </Panel>
  );
}

function Connections() {
  const answer = useQuery<{ hosts: HostPaths[] }>("connections", {}, { on: ["jobs"], every: 5_000 });
  return (
    <Panel title="Managed connections now" width="w7" flush>
      <Loaded answer={answer}>
        {(data) => {
          const rows = data.hosts.flatMap((host) => host.report.connections.map((each) => ({ ...each, host: host.host, age: host.age_ns })));
          rows.sort((a, b) => Number(!!b.degraded) - Number(!!a.degraded));
          return <div class="scroll"><Table label="Connections" rows={rows} key_={(each, n) => `${each.host} ${each.connection} ${n}`} empty={<Empty what="No connection is managed." next={<>Run jobs under <code>syntony run</code>.</>} />} columns={[
            { title: "Host", cell: (each) => <><Name to={href(["fabric", each.host])}>{each.host}</Name>{each.age > 10e9 && <div class="stale">{duration(each.age)} old</div>}</>, sort: (each) => each.host },
            { title: "Job", cell: (each) => <Name to={href(["jobs", each.job])}>{each.job}</Name>, sort: (each) => each.job },
            { title: "Paths", cell: (each) => <>{each.degraded && <Badge word="degraded">{each.degraded}</Badge>}{each.subflows.map((path) => <div key={path.path} class="row"><Badge word={path.state} /><span class="mono note">{path.path}</span></div>)}</> },
            { title: "Rate", num: true, cell: (each) => rate(each.subflows.reduce((sum, path) => sum + path.rate_bps, 0)), sort: (each) => each.subflows.reduce((sum, path) => sum + path.rate_bps, 0) },
          ]} /></div>;
        }}
      </Loaded>
    </Panel>
  );
}

function Loads({ answer }: { answer: ReturnType<typeof useQuery<Traffic>> }) {
  return (
    <Panel title="Links that jobs fill" width="w5" flush>
      <Loaded answer={answer}>
        {(data) => <div class="scroll"><Table label="Links" rows={[...data.links].sort((a, b) => share(b) - share(a))} key_={(each) => each.link} empty={<Empty what="No flow's path is known to cross a link." next="Paths of flows are learnt while jobs send." />} columns={[
          { title: "Link", cell: (each) => <Name to={href(["fabric", each.link])}>{each.link}</Name>, sort: (each) => each.link },
          { title: "Rate", num: true, cell: (each) => rate(each.bps), sort: (each) => each.bps },
          { title: "Load", num: true, cell: (each) => (each.capacity_bps ? percent(share(each)) : "unknown"), sort: share },
          { title: "Flows", num: true, cell: (each) => count(each.flows), sort: (each) => each.flows },
          { title: "Waits", num: true, cell: (each) => duration(each.queue_ns), sort: (each) => each.queue_ns },
        ]} /></div>}
      </Loaded>
    </Panel>
  );
}

const share = (each: Traffic["links"][number]) => (each.capacity_bps ? each.bps / each.capacity_bps : 0);
