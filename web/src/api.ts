/** Requests to the API of the controller that served this page; never to anyone else. */

export interface Session {
  role: string;
  name: string;
  csrf: string;
  expires_ns: number;
  /** Logged in by the identity provider, where a login of its own lasts on. */
  by_provider: boolean;
}

/** Why a request failed, as RFC 9457 problem details say it. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
  }
  /** Nobody answered. */
  get offline(): boolean {
    return this.status === 0;
  }
}

const TIMEOUT_MS = 30_000;
type Listener = () => void;
const lost = new Set<Listener>();
const reach = new Set<(reached: boolean) => void>();
let session: Session | null = null;

export const currentSession = () => session;
export function setSession(found: Session | null): void {
  session = found;
}
/** Call when the session has ended: expired, revoked, or the controller forgot it. */
export function onSessionLost(listener: Listener): () => void {
  lost.add(listener);
  return () => lost.delete(listener);
}
/** Call with whether the last request reached the controller. */
export function onReach(listener: (reached: boolean) => void): () => void {
  reach.add(listener);
  return () => reach.delete(listener);
}

export type Params = Record<string, string | number | boolean | undefined>;

export function address(name: string, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params))
    if (value !== undefined && value !== "" && value !== false) search.set(key, String(value));
  const text = search.toString();
  return `/api/v1/${name}${text ? `?${text}` : ""}`;
}

export async function request<T>(method: string, url: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && session) headers["X-Syntony-CSRF"] = session.csrf;
  let answer: Response;
  try {
    answer = await fetch(url, {
      method,
      headers,
      credentials: "same-origin",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    reach.forEach((each) => each(false));
    throw new Problem(0, "no answer", "The controller does not answer.");
  }
  reach.forEach((each) => each(true));
  if (answer.ok) return (answer.status === 204 ? undefined : await answer.json()) as T;
  const problem = await problemOf(answer);
  if (answer.status === 401 && !url.endsWith("/session")) lost.forEach((each) => each());
  throw problem;
}

async function problemOf(answer: Response): Promise<Problem> {
  let title = answer.statusText || `HTTP ${answer.status}`;
  let detail = "";
  try {
    const body = (await answer.json()) as { title?: unknown; detail?: unknown };
    if (typeof body.title === "string") title = body.title;
    if (typeof body.detail === "string") detail = body.detail;
  } catch {
    // No problem details: the status line has to do.
  }
  return new Problem(answer.status, title, detail);
}

export const order = <T>(name: string, body: unknown) =>
  request<T>("POST", `/api/v1/${name}`, body);

export const SESSION = "/api/v1/session";
export const login = (token: string) => request<Session>("POST", SESSION, { token });
export const whoAmI = () => request<Session>("GET", SESSION);
/** Ask whether the session is still good, and say so to the frame if it is not. */
export async function checkSession(): Promise<void> {
  try {
    await whoAmI();
  } catch (found) {
    if (found instanceof Problem && found.status === 401) lost.forEach((each) => each());
  }
}
export interface Provider {
  offered: boolean;
  label: string;
}
/** With which identity provider people can log in here; none where nobody says. */
export const provider = () => request<Provider>("GET", OIDC).catch(() => ({ offered: false, label: "" }));
export const OIDC = "/api/v1/oidc";
export const logout = () => request<void>("DELETE", SESSION);
