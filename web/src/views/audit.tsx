/** Audit: start one, watch it come in, the tree, the table of agents × NICs, what turned. */
import { useMemo, useState } from "preact/hooks";
import { address, order, request } from "../api";
import { type Branch, type NicRow, nicRows, REACH_NS, sameOf, type Step, treeOf } from "../audit";
import { count, instant, many } from "../format";
import type { AuditSection, AuditVerdict, AuditView, Fleet, Links, Matrix } from "../messages";
import { useQuery } from "../query";
import { href, type Route, setQuery } from "../route";
import { useBy, useOperator } from "../session";
import { AUDIT_ORDER, type Tone, toneOf } from "../status";
import { Badge, Bar, Dialog, Empty, Head, Loaded, Name, Panel, Prose, save, Table } from "../ui";

const MARKS: Record<string, string> = { pass: "✓", fail: "✗", warn: "!", unknown: "?", "not-compared": "=", skip: "–" };
const WORDS: Record<string, string> = { unknown: "unknown", pass: "pass", "not-compared": "not compared", skip: "skipped" };
/** `3 errors`, `1 warning`, `31 pass`. */
const counted = (status: string, n: number): string =>
  status === "fail" ? many(n, "error") : status === "warn" ? many(n, "warning") : `${count(n)} ${WORDS[status] ?? status}`;

export function Audit({ route }: { route: Route }) {
  const order = route.query["run"] ?? "";
  const against = route.query["against"] ?? "";
  const [waiting, setWaiting] = useState(false);
  const answer = useQuery<AuditView>("audit-view", { order, against }, waiting ? { every: 1_000 } : { on: ["fleet"] });
  const data = answer.data;
  const busy = (data?.waiting.length ?? 0) > 0;
  if (busy !== waiting && data) queueMicrotask(() => setWaiting(busy));
  return (
    <>
      <Head title="Audit">
        {data && data.runs.length > 0 && <Runs view={data} order={order} />}
        {data?.order && <Downloads view={data} />}
        <Start busy={busy} started={(started) => { setQuery({ run: started, against: undefined }); setWaiting(true); answer.reload(); }} />
      </Head>
      <Loaded answer={answer}>
        {(view) => (
          <div class="stack">
            {busy && <Progress view={view} />}
            {view.order ? <Found view={view} route={route} /> : (
              <Panel title="Verdicts"><Empty what="No audit is kept." next={<>Start one before a long job: every host checks its configuration, ports and network in about a minute. The same by command: <code>syntony audit run</code>.</>} /></Panel>
            )}
            <NicTable view={view} />
          </div>
        )}
      </Loaded>
    </>
  );
}

function Start({ busy, started }: { busy: boolean; started: (order: string) => void }) {
  const operator = useOperator();
  const by = useBy();
  const [open, setOpen] = useState(false);
  if (!operator) return <span class="note">Operators can start an audit.</span>;
  return (
    <>
      <button type="button" class="primary" disabled={busy} onClick={() => setOpen(true)}>Start audit</button>
      {open && (
        <Dialog title="Start an audit" action="Start audit" close={() => setOpen(false)}
          ask={async (fields) => {
            const hosts = String(fields.get("hosts") ?? "").split(/[\s,]+/).filter(Boolean);
            const checks = String(fields.get("checks") ?? "").split(/[\s,]+/).filter(Boolean);
            const answer = await order<{ order: string; absent: string[] }>("audit", {
              hosts, checks, active: fields.get("active") === "on", deadline_ns: Number(fields.get("deadline")) * 1e9, by,
            });
            started(answer.order);
          }}>
          <label class="field">Hosts (empty: all that are connected)<input name="hosts" placeholder="h0 h1" /></label>
          <label class="field">Checks, or beginnings of their names (empty: all)<input name="checks" placeholder="be. sw.nic-fw" /></label>
          <label class="field">Deadline, seconds<input name="deadline" type="number" min="5" max="3600" value="60" required /></label>
          <label><input type="checkbox" name="active" /> Also checks that load the host (memory, GPUs): not beside a job</label>
        </Dialog>
      )}
    </>
  );
}

function Runs({ view, order }: { view: AuditView; order: string }) {
  const name = (at: number) => { const run = view.runs[at]; return run ? `#${at + 1} by ${run.by}` : ""; };
  return (
    <>
      <label>Run <select value={order} onChange={(event) => setQuery({ run: event.currentTarget.value, against: undefined })}>
        <option value="">newest</option>
        {view.runs.map((run, n) => <option key={run.order} value={run.order}>{name(n)}, {many(run.hosts, "host")}</option>).reverse()}
      </select></label>
      <label>against <select value={view.against} onChange={(event) => setQuery({ against: event.currentTarget.value })}>
        {!view.against && <option value="">none</option>}
        {view.runs.map((run, n) => run.order !== view.order && <option key={run.order} value={run.order}>{name(n)}</option>)}
      </select></label>
    </>
  );
}

function Downloads({ view }: { view: AuditView }) {
  const [problem, setProblem] = useState("");
  const json = async () => {
    try {
      const whole = await request<AuditView>("GET", address("audit-view", { order: view.order, everything: true }));
      save(`audit-${view.order.slice(0, 8)}.json`, "application/json", JSON.stringify(whole, null, 2));
    } catch (found) {
      setProblem(found instanceof Error ? found.message : String(found));
    }
  };
  return <><button type="button" onClick={json}>Download JSON</button>{problem && <span class="bad" role="alert">{problem}</span>}</>;
}

function Progress({ view }: { view: AuditView }) {
  const run = view.runs.find((each) => each.order === view.order);
  const all = run?.hosts ?? view.waiting.length;
  const done = all - view.waiting.length;
  return (
    <Panel title={`Audit is running: ${done} of ${many(all, "host")} have reported`}>
      <progress max={all} value={done} aria-label="Hosts that have reported" class="sr" />
      <Bar parts={[[done, "accent"], [all - done, "muted"]]} />
      <p class="note" role="status">Waiting for {view.waiting.slice(0, 12).join(", ")}{view.waiting.length > 12 && ` and ${view.waiting.length - 12} more`}</p>
    </Panel>
  );
}

function Counts({ counts }: { counts: Record<string, number> }) {
  const shown = AUDIT_ORDER.filter((status) => counts[status] && ["fail", "unknown", "warn"].includes(status));
  if (!shown.length) return counts["pass"] ? <span class="ok">✓ <span class="sr">pass</span></span> : <span class="muted">{Object.keys(counts).length ? "–" : ""}</span>;
  return <>{shown.map((status) => <span key={status} class={toneOf(status)}>{counted(status, counts[status] ?? 0)}</span>)}</>;
}

function Found({ view, route }: { view: AuditView; route: Route }) {
  const tree = useMemo(() => treeOf(view.sections), [view.sections]);
  const total = tree.reduce<Record<string, number>>((sum, branch) => { for (const [status, n] of Object.entries(branch.counts)) sum[status] = (sum[status] ?? 0) + n; return sum; }, {});
  const chosen = route.query["section"] ?? "";
  const path = (branch: string, section = "") => `${branch}/${section}`;
  const verdicts = view.verdicts.filter((each) => !chosen || path(each.branch, each.section) === chosen || path(each.branch) === chosen);
  const pick = (to: string) => setQuery({ section: to === chosen ? undefined : to });
  return (
    <>
      <div class="grid">
        <Panel title="Checks" width="w4" flush tools={<span class="row"><Counts counts={total} /></span>}>
          <ul class="tree" aria-label="Tree of checks">
            {tree.map((branch) => (
              <li key={branch.name}>
                <Twig text={branch.name} counts={branch.counts} pressed={chosen === path(branch.name)} pick={() => pick(path(branch.name))} strong />
                {hasTwigs(branch) && <ul>{branch.sections.map((section) => <li key={section.section}><Twig text={section.section} counts={section.counts} why={section.why} pressed={chosen === path(branch.name, section.section)} pick={() => pick(path(branch.name, section.section))} /></li>)}</ul>}
              </li>
            ))}
          </ul>
          <div class="body note">{AUDIT_ORDER.filter((status) => total[status]).map((status) => counted(status, total[status] ?? 0)).join(", ")}{view.taken_ns > 0 && `; reports until ${instant(view.taken_ns)}`}</div>
        </Panel>
        <Panel title={chosen ? `What is wrong: ${chosen.replace(/\/$/, "").replace("/", " / ")}` : "What is wrong, worst first"} width="w8" flush tools={chosen && <button type="button" onClick={() => setQuery({ section: undefined })}>All sections</button>}>
          <div class="scroll"><Verdicts verdicts={verdicts} /></div>
          {view.left_out > 0 && <p class="body note">{count(view.left_out)} more are not shown; download all.</p>}
        </Panel>
      </div>
      {view.against && !view.waiting.length && <Turned view={view} />}
    </>
  );
}

const hasTwigs = (branch: Branch) => branch.sections.some((each: AuditSection) => each.section);

function Twig(props: { text: string; counts: Record<string, number>; why?: string; pressed: boolean; pick: () => void; strong?: boolean }) {
  return (
    <button type="button" aria-pressed={props.pressed} onClick={props.pick} title={props.why}>
      {props.strong ? <strong>{props.text}</strong> : props.text}
      <span class="counts"><Counts counts={props.counts} /></span>
    </button>
  );
}

const NAMED = 6;

function Verdicts({ verdicts }: { verdicts: AuditVerdict[] }) {
  const rows = useMemo(() => sameOf(verdicts), [verdicts]);
  return (
    <Table label="Verdicts" rows={rows} empty={<Empty what="Nothing is wrong here." />} columns={[
      { title: "Status", cell: (each) => <Badge word={each.status} />, sort: (each) => AUDIT_ORDER.indexOf(each.status as "fail") },
      { title: "Subject", cell: (each) => <span title={each.subjects.join(", ")}>{each.subjects.slice(0, NAMED).map((name) => <><Name key={name} to={name === "fleet" ? undefined : href(["fabric", name])}>{name}</Name> </>)}{each.subjects.length > NAMED && <span class="note">and {each.subjects.length - NAMED} more</span>}</span>, sort: (each) => each.subjects[0] ?? "" },
      { title: "Check", cell: (each) => each.checks.map((name) => <div key={name}><Name>{name}</Name></div>), sort: (each) => each.check },
      { title: "Got", cell: (each) => <><Prose>{each.got}</Prose>{each.expected && <div class="note">expected {each.expected}</div>}<div class="note"><Prose>{each.evidence}</Prose></div></> },
      { title: "What to do", cell: (each) => <><Prose>{each.remedy}</Prose>{each.meaning && <div class="note">{each.meaning}</div>}{each.suspect && <div class="note">suspect: {each.suspect}</div>}</> },
    ]} />
  );
}

function Turned({ view }: { view: AuditView }) {
  const kinds = new Map<string, number>();
  for (const each of view.changes) kinds.set(each.change, (kinds.get(each.change) ?? 0) + 1);
  return (
    <Panel title="Difference to the other run" flush tools={<span class="row">{[...kinds].map(([kind, n]) => <Badge key={kind} word={kind}>{n} {kind}</Badge>)}</span>}>
      <Table label="Changes" rows={view.changes} empty={<Empty what="No difference." />} columns={[
        { title: "Change", cell: (each) => <Badge word={each.change} />, sort: (each) => each.change },
        { title: "Subject", cell: (each) => <Name>{each.subject}</Name>, sort: (each) => each.subject },
        { title: "Check", cell: (each) => <Name>{each.check}</Name>, sort: (each) => each.check },
        { title: "Before", cell: (each) => each.before },
        { title: "After", cell: (each) => each.after },
      ]} />
    </Panel>
  );
}

function NicTable({ view }: { view: AuditView }) {
  const fleet = useQuery<Fleet>("fleet", {}, { on: ["fleet"] });
  const links = useQuery<Links>("links", {}, { on: ["fleet", "incidents"], every: 15_000 });
  const matrix = useQuery<Matrix>("matrix", { window_ns: REACH_NS }, { every: 10_000 });
  const rows = useMemo(() => nicRows(view.ports, fleet.data, links.data?.ports ?? [], links.data?.now_ns ?? 0, matrix.data), [view.ports, fleet.data, links.data, matrix.data]);
  const step = (pick: (row: NicRow) => Step) => ({ cell: (row: NicRow) => <StepCell step={pick(row)} />, sort: (row: NicRow) => AUDIT_ORDER.indexOf(pick(row).status as "fail") });
  return (
    <Panel title="Agents × NICs" flush tools={<span class="note">What the audit says; where it says nothing, agents and probes now.</span>}>
      <Loaded answer={fleet}>
        {() => <Table label="Agents and NICs" rows={rows} key_={(row) => `${row.host}/${row.nic}`} empty={<Empty what="No agent is attached." next={<>Start one on each host: <code>syntony agent run</code>.</>} />} columns={[
          { title: "Status", cell: (row) => (row.status ? <Badge word={row.status} /> : <Badge word="unknown" />), sort: (row) => AUDIT_ORDER.indexOf(row.status as "fail") },
          { title: "Agent", cell: (row) => <Name to={href(["fabric", row.host])}>{row.host}</Name>, sort: (row) => row.host },
          { title: "NIC", cell: (row) => <Name to={href(["fabric", `${row.host}/${row.nic}`])}>{row.nic}</Name>, sort: (row) => row.nic },
          { title: "Initialized", ...step((row) => row.initialized) },
          { title: "Active", ...step((row) => row.active) },
          { title: "GID Index", ...step((row) => row.gid) },
          { title: "Connectivity", ...step((row) => row.connectivity) },
        ]} />}
      </Loaded>
    </Panel>
  );
}

function StepCell({ step }: { step: Step }) {
  const tone: Tone = toneOf(step.status);
  return <span title={`by ${step.source}`} class={tone}>{step.status ? `${MARKS[step.status] ?? ""} ` : ""}<span class={step.text ? "" : "sr"}>{step.text ?? (step.status || "nothing known")}</span>{!step.status && <span class="muted" aria-hidden="true">·</span>}</span>;
}
