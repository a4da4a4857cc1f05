/** The frame around every view: navigation, login, what is lost, the theme. */
import { useEffect, useRef, useState } from "preact/hooks";
import { login, logout, OIDC, onSessionLost, Problem, provider, type Session, setSession, whoAmI } from "./api";
import { duration } from "./format";
import { connect, disconnect, useLink } from "./live";
import type { ControllerStatus, FailoverStatus, Incidents } from "./messages";
import { forgetAnswers, useQuery } from "./query";
import { href, useRoute } from "./route";
import { SessionContext } from "./session";
import { toggleTheme, useTheme } from "./theme";
import { Safe } from "./ui";
import { Audit } from "./views/audit";
import { ClockView } from "./views/clock";
import { Cost } from "./views/cost";
import { Delay } from "./views/delay";
import { Fabric } from "./views/fabric";
import { IncidentsView } from "./views/incidents";
import { JobsView } from "./views/jobs";
import { Overview } from "./views/overview";
import { TrafficView } from "./views/traffic";

const VIEWS = [
  ["overview", "Overview", Overview, "M3 3h7v7H3zM14 3h7v4h-7zM14 11h7v10h-7zM3 14h7v7H3z"],
  ["fabric", "Fabric", Fabric, "M12 4v5M12 9L5 15M12 9l7 6M3 15h4v5H3zM17 15h4v5h-4zM10 2h4v4h-4z"],
  ["delay", "Delay", Delay, "M3 3h5v5H3zM10 3h5v5h-5zM17 3h4v5h-4zM3 10h5v5H3zM10 10h5v5h-5zM17 10h4v5h-4zM3 17h5v4H3zM10 17h5v4h-5z"],
  ["clock", "Clock", ClockView, "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3 2"],
  ["audit", "Audit", Audit, "M9 12l2 2 4-5M5 3h14v18H5z"],
  ["jobs", "Jobs", JobsView, "M3 17l5-6 4 4 8-10M3 21h18"],
  ["traffic", "Traffic", TrafficView, "M4 7h12l-3-3M20 17H8l3 3"],
  ["incidents", "Incidents", IncidentsView, "M12 3l9 17H3zM12 9v5M12 17v.5"],
  ["cost", "Cost", Cost, "M12 3v18M16 7c-1-2-8-2-8 1s8 3 8 6-7 3-8 1"],
] as const;

type State = { session: Session | null; known: boolean; why: string };

export function App() {
  const [state, setState] = useState<State>({ session: null, known: false, why: "" });
  const enter = (session: Session | null, why = "") => {
    setSession(session);
    setState({ session, known: true, why });
    if (session) connect();
    else disconnect();
  };
  useEffect(() => onSessionLost(() => enter(null, "The session has ended. Log in again; the page stays where it is.")), []);
  useEffect(() => {
    void begin(enter);
    const link = () => void (TOKEN.test(location.hash) && begin(enter));
    addEventListener("hashchange", link);
    return () => removeEventListener("hashchange", link);
  }, []);
  if (!state.known) return <div class="loading" role="status">Loading…</div>;
  if (!state.session) return <Login why={state.why} enter={enter} />;
  return <SessionContext.Provider value={state.session}><Frame session={state.session} leave={() => enter(null)} /></SessionContext.Provider>;
}

const TOKEN = /^#\/?token=([^&]+)(?:&to=(.*))?$/;

/** Exchange a token in the address for a session and remove it from the address; else ask who we are. */
async function begin(enter: (session: Session | null, why?: string) => void): Promise<void> {
  const given = TOKEN.exec(location.hash);
  if (given) history.replaceState(null, "", location.pathname + (given[2] ? `#${decodeURIComponent(given[2])}` : ""));
  else if (!location.hash) comeBack();
  try {
    enter(given?.[1] ? await login(decodeURIComponent(given[1])) : await whoAmI());
  } catch (found) {
    const problem = found as Problem;
    enter(null, problem.status === 401 && !given ? "" : problem.message);
  }
}

const VIEW = "syntony-view";
/** To the view from which a login by an identity provider set out: its redirect has no room for it. */
function comeBack(): void {
  const view = sessionStorage.getItem(VIEW);
  sessionStorage.removeItem(VIEW);
  if (view?.startsWith("#/")) history.replaceState(null, "", location.pathname + view);
}

/** A link to the identity provider, where there is one. */
function ByProvider() {
  const [label, setLabel] = useState("");
  useEffect(() => void provider().then((found) => setLabel(found.offered ? found.label : "")), []);
  if (!label) return null;
  return <a class="button primary" href={`${OIDC}/login`} onClick={() => sessionStorage.setItem(VIEW, location.hash)}>Log in with {label}</a>;
}

function Login({ why, enter }: { why: string; enter: (session: Session) => void }) {
  const [problem, setProblem] = useState(why);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget as HTMLFormElement).get("token") ?? "").trim();
    try {
      forgetAnswers();
      enter(await login(token));
    } catch (found) {
      setProblem(found instanceof Error ? found.message : String(found));
    }
  };
  useEffect(() => void (document.title = "Log in – Syntony"), []);
  return (
    <main class="login">
      <form class="panel" onSubmit={submit}>
        <span class="brand"><Mark /> Syntony</span>
        <h1 class="sr">Log in</h1>
        {problem && <div class="problem" role="alert">{problem}</div>}
        <ByProvider />
        <label class="field">Token<input name="token" type="password" autocomplete="off" required autofocus /></label>
        <button class="primary" type="submit">Log in</button>
        <p class="note">An operator makes tokens on the controller's host:</p>
        <pre>syntony enrol api token viewer NAME</pre>
      </form>
    </main>
  );
}

function Frame({ session, leave }: { session: Session; leave: () => void }) {
  const route = useRoute();
  const link = useLink();
  const theme = useTheme();
  const incidents = useQuery<Incidents>("incidents", {}, { on: ["incidents"] });
  const status = useQuery<FailoverStatus>("failover-status", {}, { on: ["switch"] });
  const [name, title, View] = VIEWS.find(([each]) => each === route.path[0]) ?? VIEWS[0];
  useEffect(() => {
    document.title = `${[title, ...route.path.slice(1)].join(" · ")} – Syntony`;
  }, [title, route.path.join("/")]);
  useEffect(() => {
    document.getElementById("main")?.scrollTo(0, 0);
  }, [name]);
  const open = incidents.data?.incidents.filter((each) => each.state !== "resolved" && !each.cause) ?? [];
  const worst = open.some((each) => each.severity === "critical") ? "bad" : "warn";
  const end = async () => {
    const ended = await logout().then(() => true, () => false);
    forgetAnswers();
    // Otherwise whoever comes next to this browser is let in without a question.
    if (ended && session.by_provider) location.assign(`${OIDC}/logout`);
    else leave();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the view</a>
      <div class="frame">
        <div class="side">
          <a class="brand" href="#/overview"><Mark /> Syntony</a>
          <nav aria-label="Views">
            {VIEWS.map(([each, text, , icon]) => (
              <a key={each} href={href([each])} aria-current={each === name ? "page" : undefined}>
                <svg width="16" height="16" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round" aria-hidden="true"><path d={icon} /></svg>
                {text}
                {each === "incidents" && open.length > 0 && <span class={`badge plain n ${worst}`}>{open.length}</span>}
              </a>
            ))}
          </nav>
          <div class="foot">
            <span class={link === "live" ? "ok" : "warn"} role="status">{link === "live" ? "● Live" : link === "connecting" ? "○ Connecting" : "○ Not connected"}</span>
            <span>{session.name}<br />{session.role}</span>
            <span class="row">
              <button type="button" class="icon" onClick={toggleTheme} aria-label={theme === "dark" ? "Light theme" : "Dark theme"} title={theme === "dark" ? "Light theme" : "Dark theme"}>
                <svg width="16" height="16" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" aria-hidden="true"><path d={theme === "dark" ? "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M5 19l1-1M18 6l1-1" : "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z"} /></svg>
              </button>
              <button type="button" onClick={end}>Log out</button>
            </span>
          </div>
        </div>
        <div>
          {link === "lost" && <div class="banner" role="alert">Connection to the controller lost. What is shown may be stale; trying again.</div>}
          <Successor />
          {status.data?.switch?.stopped && <div class="banner bad" role="status">Traffic control is stopped by {status.data.switch.by}. <a href="#/traffic">Traffic</a></div>}
          <main class="main" id="main" tabIndex={-1}>
            <Expiring session={session} />
            <Safe key={name}><View route={route} /></Safe>
          </main>
        </div>
      </div>
    </>
  );
}

/** Which controller answers: another one may have taken over since the page was opened. */
function Successor() {
  const status = useQuery<ControllerStatus>("controller", {}, { on: ["fleet"] });
  const known = useRef(0);
  const [dismissed, dismiss] = useState(0);
  if (!status.data) return null;
  const { epoch, seen_epoch, name } = status.data;
  known.current ||= epoch;
  if (seen_epoch > epoch)
    return <div class="banner bad" role="alert">Another controller has taken over (epoch {seen_epoch}): agents do not obey this one any more (epoch {epoch}). Open the other one.</div>;
  if (epoch === known.current || epoch === dismissed) return null;
  return (
    <div class="banner" role="status">
      Controller {name} has taken over (epoch {epoch} after {known.current}). This page goes on with what it knows.
      <button type="button" onClick={() => dismiss(epoch)}>Dismiss</button>
    </div>
  );
}

const WARN_NS = 300e9;

function Expiring({ session }: { session: Session }) {
  const [left, setLeft] = useState(Infinity);
  useEffect(() => {
    const look = () => setLeft(session.expires_ns - Date.now() * 1e6);
    look();
    const timer = setInterval(look, 30_000);
    return () => clearInterval(timer);
  }, [session]);
  if (left > WARN_NS || left <= 0) return null;
  return <p class="stale" role="status">The session ends in {duration(left)}.</p>;
}

function Mark() {
  return (
    <svg width="22" height="22" viewBox="0 0 24 24" aria-hidden="true"><rect width="24" height="24" rx="6" fill="#0f766e" /><path d="M4 12h3l2-5 3 10 3-10 2 5h3" fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" /></svg>
  );
}


