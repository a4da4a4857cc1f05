/** One vocabulary of states for every view: what a word means for the fleet. */

export type Tone = "ok" | "warn" | "bad" | "unknown" | "info" | "";

const TONES: Record<string, Tone> = {
  pass: "ok", ok: "ok", up: "ok", active: "ok", connected: "ok", SYNCHRONIZED: "ok", resolved: "ok",
  running: "ok", act: "ok", helped: "ok", done: "ok", better: "ok", reused: "ok", replaced: "ok", verified: "ok", checkpoint: "warn", unprotected: "warn", differs: "bad",
  warn: "warn", warning: "warn", HOLDOVER: "warn", degraded: "warn", stale: "warn", waiting: "warn",
  stalled: "warn", silent: "warn", observe: "info", moved: "info", ordered: "info", plain: "info",
  standby: "info", acknowledged: "info", changed: "warn",
  fail: "bad", failed: "bad", critical: "bad", breach: "bad", down: "bad", DISRUPTED: "bad",
  stopped: "bad", open: "bad", worse: "bad", disconnected: "bad", dead: "bad",
  unknown: "unknown", UNKNOWN: "unknown", new: "unknown", gone: "unknown",
  info: "info", skip: "", "not-compared": "", off: "", ended: "",
};

/** What a port's state (`syntony links`) means; not there: nobody could read it. */
export const PORT_TONES: Record<string, Tone> = {
  active: "ok", absent: "bad", "no-peer": "bad", training: "bad", recovering: "warn", disabled: "warn", "no-subnet-manager": "bad",
};
/** Agents tell of a port that does not change once a minute: one that was not looked at for so long is stale. */
export const PORT_STALE_NS = 150e9;

export const toneOf = (word: string): Tone => TONES[word] ?? "";

/** Worst first; what is not known is worse than a warning, for nobody knows how bad it is. */
export const AUDIT_ORDER = ["fail", "unknown", "warn", "pass", "not-compared", "skip"] as const;

export const SEVERITY = ["critical", "warning", "info"];
