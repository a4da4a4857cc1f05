/** Incidents: list, one of them with its evidence, acknowledge, silence, rules. */
import { useState } from "preact/hooks";
import { order } from "../api";
import { ago, clock, duration, instant, many, measured } from "../format";
import type { Incident, Incidents, Rule, Silence } from "../messages";
import { nicsIn } from "../fabric/state";
import { useQuery } from "../query";
import { choiceOf, href, instantOf, type Route, setQuery } from "../route";
import { useBy, useOperator } from "../session";
import { SEVERITY } from "../status";
import { Badge, Choice, Dialog, Empty, Head, Loaded, Name, Panel, Prose, Table } from "../ui";
import { DelayCurve } from "./device";
import { placeOf } from "./place";
import { Then } from "./then";

const NOW = () => Date.now() * 1e6;

export function IncidentsView({ route }: { route: Route }) {
  const number = Number(route.path[1]);
  if (route.path[1] === "rules") return <Rules />;
  return number > 0 ? <One key={number} number={number} then={instantOf(route.query["then"])} by={route.query["by"]} /> : <List route={route} />;
}

const SHOWN = [["live", "Open"], ["day", "Last 24 h"], ["week", "Last 7 d"]] as const;
const SINCE: Record<string, number> = { day: 86_400e9, week: 604_800e9 };

function List({ route }: { route: Route }) {
  const shown = choiceOf(route.query["show"], SHOWN, "live");
  const answer = useQuery<Incidents>("incidents", { since_ns: SINCE[shown] }, { on: ["incidents"] });
  const text = (route.query["q"] ?? "").toLowerCase();
  return (
    <>
      <Head title="Incidents">
        <label><span class="sr">Filter</span><input type="search" placeholder="Filter by name" value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} /></label>
        <Choice label="Which" value={shown} options={SHOWN} pick={(value) => setQuery({ show: value })} />
        <a class="button" href="#/incidents/rules">Rules</a>
        <SilenceButton subject="" rule="" done={answer.reload} />
      </Head>
      <div class="stack">
        <Panel title="One line for each cause" flush>
          <Loaded answer={answer}>{(data) => <IncidentTable incidents={causes(data.incidents, text)} all={data.incidents} />}</Loaded>
        </Panel>
        {answer.data && answer.data.silences.length > 0 && <Silences silences={answer.data.silences} done={answer.reload} />}
      </div>
    </>
  );
}

/** Incidents that no other explains, worst and newest first, of which a text is part. */
export function causes(incidents: readonly Incident[], text = ""): Incident[] {
  return incidents
    .filter((each) => !each.cause && `${each.summary} ${each.subject} ${each.rule} ${each.jobs.join(" ")}`.toLowerCase().includes(text))
    .sort((a, b) => Number(a.state === "resolved") - Number(b.state === "resolved") || SEVERITY.indexOf(a.severity) - SEVERITY.indexOf(b.severity) || b.opened_ns - a.opened_ns);
}

/** Letters of a NIC's name at most; cables and pairs may take two lines where there is little room. */
const PLACE = 12;

export function IncidentTable({ incidents, all }: { incidents: Incident[]; all: readonly Incident[] }) {
  const explained = (each: Incident) => all.filter((other) => other.cause === each.number).length;
  return (
    <Table label="Incidents" rows={incidents} key_={(each) => `${each.number}-${each.opened_ns}`}
      empty={<Empty what="No incident." next="Nothing is wrong as far as the controller can see. Clocks, links and paths are watched all the time." />}
      columns={[
        { title: "Severity", cell: (each) => <Badge word={each.severity} />, sort: (each) => SEVERITY.indexOf(each.severity) },
        { title: "What", cell: (each) => <><a href={href(["incidents", String(each.number)])}>{each.summary}</a>{each.jobs.length > 0 && <div class="note">hits {each.jobs.join(", ")}</div>}</> },
        { title: "Where", cell: (each) => <Name wrap={each.subject.length > PLACE} to={placeOf(each.subject)}>{each.subject}</Name>, sort: (each) => each.subject },
        { title: "State", cell: (each) => <State incident={each} /> },
        ...(incidents.some(explained) ? [{ title: "Explains", num: true, cell: (each: Incident) => explained(each) || "", sort: explained }] : []),
        { title: "Opened", num: true, cell: (each) => <span title={instant(each.opened_ns)}>{ago(each.opened_ns, Math.max(NOW(), each.updated_ns))}</span>, sort: (each) => each.opened_ns },
      ]} />
  );
}

function State({ incident }: { incident: Incident }) {
  const words = [incident.state];
  if (incident.silenced) words.push("silenced");
  if (incident.pending) words.push("being probed");
  if (incident.acknowledged_by) words.push(`by ${incident.acknowledged_by}`);
  return <><Badge word={incident.state} />{words.length > 1 && <span class="note"> {words.slice(1).join(", ")}</span>}</>;
}

function One({ number, then, by }: { number: number; then: number; by: string | undefined }) {
  const answer = useQuery<Incidents>("incidents", { number }, { on: ["incidents"] });
  return (
    <Loaded answer={answer}>
      {(data) => {
        const [incident, ...explained] = data.incidents;
        if (incident && then) return <Then incident={incident} at={then} by={by} />;
        if (incident) return <Detail incident={incident} explained={explained} done={answer.reload} />;
        return <><Head title="Incidents" /><Panel title={`Incident ${number}`}><Empty what="There is none of that number." next={<a href="#/incidents">All incidents</a>} /></Panel></>;
      }}
    </Loaded>
  );
}

/** Evidence that says what was looked at and found not to be it. */
const EXCLUDES = /\b(ruled out|not (?:the|a|its|by|because)|no other|excluded|cannot be|do not|does not|instead|apart|other direction)\b/i;

function Detail({ incident, explained, done }: { incident: Incident; explained: Incident[]; done: () => void }) {
  const operator = useOperator();
  const by = useBy();
  const [asked, ask] = useState<"ack" | "resolve" | "">("");
  const live = incident.state !== "resolved";
  const until = incident.resolved_ns ?? NOW();
  const found = incident.evidence.filter((line) => !EXCLUDES.test(line));
  const excluded = incident.evidence.filter((line) => EXCLUDES.test(line));
  return (
    <>
      <Head title={<><span class="crumb"><a href="#/incidents">Incidents</a> / {incident.number} </span>{incident.summary}</>}>
        <Badge word={incident.severity} /><Badge word={incident.state} />
      </Head>
      <div class="grid">
        <div class="stack w8">
          <Panel title="What to do">{incident.remedy ? <Prose>{incident.remedy}</Prose> : "No remedy is known for this rule."}</Panel>
          <Panel title="Evidence">
            {found.length ? <ul class="evidence">{found.map((line) => <li key={line}>{line}</li>)}</ul> : <span class="muted">None was recorded.</span>}
          </Panel>
          <Course incident={incident} />
          {excluded.length > 0 && <Panel title="What was ruled out or could not be told apart"><ul class="evidence">{excluded.map((line) => <li key={line}>{line}</li>)}</ul></Panel>}
          {explained.length > 0 && (
            <Panel title={`Explains ${many(explained.length, "other incident")}`} flush>
              <Table label="Explained incidents" rows={explained} columns={[
                { title: "Rule", cell: (each) => each.rule },
                { title: "What", cell: (each) => <a href={href(["incidents", String(each.number)])}>{each.summary}</a> },
                { title: "State", cell: (each) => <Badge word={each.state} /> },
                { title: "Opened", num: true, cell: (each) => clock(each.opened_ns) },
              ]} />
            </Panel>
          )}
        </div>
        <div class="stack w4">
          <Panel title="Facts">
            <dl class="facts">
              <dt>Where</dt><dd><Name to={placeOf(incident.subject)}>{incident.subject}</Name></dd>
              <dt>Rule</dt><dd>{incident.rule}</dd>
              <dt>Opened</dt><dd>{instant(incident.opened_ns)}</dd>
              <dt>{live ? "Open for" : "Lasted"}</dt><dd>{duration(Math.max(0, until - incident.opened_ns))}</dd>
              <dt>Value</dt><dd>{measured(incident.value, incident.unit)}, worst {measured(incident.worst, incident.unit)}</dd>
              <dt>Jobs</dt><dd>{incident.jobs.length ? incident.jobs.map((job) => <a key={job} href={href(["jobs", job])}>{job} </a>) : "none known"}</dd>
              <dt>Pages</dt><dd>{incident.pages || "none"}{incident.silenced && ", silenced"}</dd>
              {incident.repeats > 0 && <><dt>Earlier</dt><dd>{many(incident.repeats, "time")} within a week</dd></>}
              {incident.cause && <><dt>Explained by</dt><dd><a href={href(["incidents", String(incident.cause)])}>incident {incident.cause}</a></dd></>}
              {incident.acknowledged_by && <><dt>Acknowledged</dt><dd>{incident.acknowledged_by}{incident.comment && `: ${incident.comment}`}</dd></>}
            </dl>
          </Panel>
          <Panel title="Look back">
            <p>The whole fleet <a class="button" href={href(["incidents", String(incident.number)], { then: Math.ceil(incident.opened_ns / 1e9) * 1e9 })}>when it opened</a></p>
            <p>One part of it:</p>
            <div class="row">
              <a class="button" href={href(["delay"], { end: Math.round(incident.opened_ns + 30e9) })}>Delays</a>
              <a class="button" href={href(["clock"], { window: "1h" })}>Clocks</a>
              {incident.jobs[0] && <a class="button" href={href(["jobs", incident.jobs[0]], { end: Math.round(incident.opened_ns + 60e9) })}>Job</a>}
            </div>
          </Panel>
          {live && (
            <Panel title="Act">
              {operator
                ? <div class="row">
                    <button type="button" class="primary" disabled={incident.state === "acknowledged"} onClick={() => ask("ack")}>Acknowledge</button>
                    <SilenceButton subject={incident.subject} rule={incident.rule} done={done} />
                    <button type="button" onClick={() => ask("resolve")}>Resolve</button>
                  </div>
                : <span class="muted">Viewers read only. An operator can acknowledge, silence and resolve.</span>}
            </Panel>
          )}
        </div>
      </div>
      {asked && (
        <Dialog title={asked === "ack" ? `Acknowledge incident ${incident.number}` : `Resolve incident ${incident.number}`} action={asked === "ack" ? "Acknowledge" : "Resolve"} close={() => ask("")}
          ask={async (fields) => {
            await order("incident-action", { number: incident.number, what: asked, by, comment: String(fields.get("comment") ?? "") });
            done();
          }}>
          <p>{asked === "ack" ? "Nobody is paged for it any more while it lasts." : "It opens again if what it is about is still bad."}</p>
          <label class="field">Comment, for whoever looks next<input name="comment" maxLength={200} autofocus /></label>
        </Dialog>
      )}
    </>
  );
}

const COURSE_NS = 3600e9;

/** Delay and loss about the first NIC that it is about, an hour of which half lies after it opened. */
function Course({ incident }: { incident: Incident }) {
  const [nic] = nicsIn(incident.subject);
  if (!nic) return null;
  const end = incident.opened_ns + COURSE_NS / 2;
  const marks = [{ at_ns: incident.opened_ns, label: "opened", tone: "bad" }, ...(incident.resolved_ns ? [{ at_ns: incident.resolved_ns, label: "over", tone: "ok" }] : [])];
  return <DelayCurve nic={nic} length={COURSE_NS} end={end < NOW() ? end : 0} marks={marks} />;
}

function SilenceButton({ subject, rule, done }: { subject: string; rule: string; done: () => void }) {
  const operator = useOperator();
  const by = useBy();
  const [open, setOpen] = useState(false);
  if (!operator) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>Silence…</button>
      {open && (
        <Dialog title="Silence" action="Silence" close={() => setOpen(false)}
          ask={async (fields) => {
            const [lasts, begins] = [Number(fields.get("lasts")), Number(fields.get("begins"))];
            await order("silence-action", {
              subject: fields.get("subject"), rule: fields.get("rule"), for_ns: Math.round(lasts * 3600e9), in_ns: Math.round(begins * 3600e9), by, comment: fields.get("comment"),
            });
            done();
          }}>
          <p>Matching incidents open and are listed, but nobody is paged. What is still wrong at the end pages then.</p>
          <label class="field">Where (a pattern; a host also means its parts)<input name="subject" value={subject} placeholder="h3 or leaf0-*" /></label>
          <label class="field">Rule (a pattern; empty for all)<input name="rule" value={rule} /></label>
          <div class="row">
            <label class="field">For, hours<input name="lasts" type="number" min="0.1" step="0.1" value="2" required /></label>
            <label class="field">Beginning in, hours<input name="begins" type="number" min="0" step="0.1" value="0" required /></label>
          </div>
          <label class="field">Why<input name="comment" maxLength={200} required /></label>
        </Dialog>
      )}
    </>
  );
}

function Silences({ silences, done }: { silences: Silence[]; done: () => void }) {
  const operator = useOperator();
  const by = useBy();
  return (
    <Panel title="Silences" flush>
      <Table label="Silences" rows={silences} key_={(each) => each.number} columns={[
        { title: "Where", cell: (each) => <Name>{each.subject}</Name> },
        { title: "Rule", cell: (each) => <Name>{each.rule}</Name> },
        { title: "From", cell: (each) => instant(each.first_ns) },
        { title: "Lasts", num: true, cell: (each) => duration(each.last_ns - each.first_ns) },
        { title: "By", cell: (each) => each.who },
        { title: "Why", cell: (each) => each.comment },
        { title: "", cell: (each) => operator && <button type="button" onClick={() => order("silence-action", { end: each.number, by }).then(done, done)}>End</button> },
      ]} />
    </Panel>
  );
}

function Rules() {
  const answer = useQuery<{ rules: Rule[] }>("rules");
  return (
    <>
      <Head title={<><span class="crumb"><a href="#/incidents">Incidents</a> / </span>Rules</>} />
      <Panel title="In force" flush>
        <Loaded answer={answer}>{(data) => (
          <Table label="Rules" rows={data.rules} columns={[
            { title: "Rule", cell: (rule) => <Name>{rule.name}</Name>, sort: (rule) => rule.name },
            { title: "Severity", cell: (rule) => <Badge word={rule.severity} />, sort: (rule) => SEVERITY.indexOf(rule.severity) },
            { title: "Opens when", cell: (rule) => <span class="mono">{rule.metric} {rule.above !== null ? `> ${measured(rule.above, rule.unit)}` : `< ${measured(rule.below ?? 0, rule.unit)}`}</span> },
            { title: "Explained by", cell: (rule) => <span class="note">{rule.explained_by.join(", ") || "–"}</span> },
            { title: "What to do", cell: (rule) => <Prose>{rule.remedy}</Prose> },
          ]} />
        )}</Loaded>
      </Panel>
    </>
  );
}
