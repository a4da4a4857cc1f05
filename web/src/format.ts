/** Numbers as text, always with a unit; what is not known is "unknown", never 0. */

export const UNKNOWN = "unknown";
const NS_UNITS: [number, string][] = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

/** Three significant digits without an exponent. */
export function digits(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  const places = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(places)));
}

/** A duration: `94 µs`, `2.5 ms`, `3 min`. */
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return UNKNOWN;
  const size = Math.abs(ns);
  if (size >= 120e9) return span(ns);
  const [scale, unit] = [...NS_UNITS].reverse().find(([least]) => size >= least) ?? [1, "ns"];
  return `${digits(ns / scale)} ${unit}`;
}

/** A long duration: `5 min`, `3 h`, `2 d`. */
function span(ns: number): string {
  const seconds = ns / 1e9;
  if (Math.abs(seconds) < 7200) return `${Math.round(seconds / 60)} min`;
  if (Math.abs(seconds) < 172_800) return `${digits(seconds / 3600)} h`;
  return `${digits(seconds / 86_400)} d`;
}

export function rate(bps: number | null | undefined): string {
  if (bps === null || bps === undefined || !Number.isFinite(bps)) return UNKNOWN;
  const units: [number, string][] = [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]];
  const [scale, unit] = units.find(([least]) => Math.abs(bps) >= least) ?? [1, "b/s"];
  return `${digits(bps / scale)} ${unit}`;
}

/** A rate of a clock: `320 ppb`, `17.4 ppm`. */
export const drift = (ppb: number): string => (ppb === 0 ? "0" : Math.abs(ppb) < 1000 ? `${digits(ppb)} ppb` : `${digits(ppb / 1000)} ppm`);

export function percent(ratio: number | null | undefined): string {
  if (ratio === null || ratio === undefined || !Number.isFinite(ratio)) return UNKNOWN;
  const value = ratio * 100;
  return `${value !== 0 && Math.abs(value) < 0.01 ? "<0.01" : digits(value)} %`;
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en-US");
}

/** `3 hosts`, `1 host`. */
export function many(value: number, one: string, several = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : several}`;
}

/** A value of an incident in its rule's unit. */
export function measured(value: number | null, unit: string): string {
  if (value === null) return UNKNOWN;
  if (unit === "ns") return duration(value);
  if (unit === "ratio") return percent(value);
  if (unit === "s") return duration(value * 1e9);
  return `${digits(value)}${unit ? ` ${unit}` : ""}`;
}

/** An instant of fleet time in this browser's time zone; 0 is never. */
export function instant(ns: number): string {
  if (!ns) return "never";
  const when = new Date(ns / 1e6);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${clock(ns)}`;
}

export function clock(ns: number): string {
  const when = new Date(ns / 1e6);
  const two = (part: number) => String(part).padStart(2, "0");
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

export function ago(ns: number, nowNs: number): string {
  if (!ns) return "never";
  return nowNs - ns < 1.5e9 ? "just now" : `${duration(Math.round((nowNs - ns) / 1e9) * 1e9)} ago`;
}

/** Natural order: rail2 before rail10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
