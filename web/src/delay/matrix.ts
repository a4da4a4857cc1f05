/** The delay matrix as numbers and as a picture. Pure. */
import { byName, percent } from "../format";
import type { Cell } from "../messages";

export type Metric = "p50" | "p99" | "min" | "half" | "skew" | "loss";

export interface Grid {
  /** NICs, by rail and then by host: rows send, columns receive. */
  names: string[];
  /** Cell of row·n + column; undefined: not probed. */
  cells: (Cell | undefined)[];
}

const railOf = (nic: string) => nic.slice(nic.indexOf("/") + 1);

export function makeGrid(cells: readonly Cell[], rail = ""): Grid {
  const chosen = rail ? cells.filter((each) => railOf(each.src) === rail && railOf(each.dst) === rail) : cells;
  const names = [...new Set(chosen.flatMap((each) => [each.src, each.dst]))];
  names.sort((a, b) => byName(railOf(a), railOf(b)) || byName(a, b));
  const at = new Map(names.map((name, n) => [name, n]));
  const found = new Array<Cell | undefined>(names.length ** 2);
  for (const each of chosen) found[(at.get(each.src) ?? 0) * names.length + (at.get(each.dst) ?? 0)] = each;
  return { names, cells: found };
}

export const railsOf = (cells: readonly Cell[]): string[] => [...new Set(cells.map((each) => railOf(each.src)))].sort(byName);

/** A direction that loses more than this share of its probes is lost, as in the terminal. */
const DARK_LOSS = 0.5;

export const isLost = (cell: Cell): boolean => cell.sent > 0 && cell.lost > DARK_LOSS * cell.sent;

/** Why a direction has no delay: the sign and the meaning that the terminal has, too (`view/heatmap.py`). */
export type Gap = readonly [sign: string, meaning: string];
export const LOST: Gap = ["lost", "lost"];
export const NOT_MEASURED: Gap = ["–", "not measured: the other direction is lost, or nothing was sent"];
export const CLOCKS_NOT_KNOWN: Gap = ["?", "clocks not known"];

export const gapText = ([sign, meaning]: Gap): string => (sign === meaning ? meaning : `${sign} ${meaning}`);

/** `other`: the other direction; a delay needs a stamp of either end, and the far one's comes with the reply. */
export function gapOf(cell: Cell, other: Cell | undefined): Gap {
  if (isLost(cell)) return LOST;
  if (!cell.sent || (other && isLost(other))) return NOT_MEASURED;
  return cell.lost ? [percent(cell.lost / cell.sent), "lost, delay not known"] : CLOCKS_NOT_KNOWN;
}

/** Value of a cell, ns or a ratio; null: probed, and not known, or lost; undefined: not probed. */
export function valueAt(grid: Grid, index: number, metric: Metric): number | null | undefined {
  const cell = grid.cells[index];
  if (!cell) return undefined;
  if (metric !== "loss" && isLost(cell)) return null;
  switch (metric) {
    case "p50": return cell.owd_p50_ns;
    case "p99": return cell.owd_p99_ns;
    case "min": return cell.owd_min_ns;
    case "loss": return cell.sent ? cell.lost / cell.sent : null;
    case "half": return half(cell, back(grid, index));
    case "skew": {
      const trip = half(cell, back(grid, index));
      return trip === null || cell.owd_p50_ns === null ? null : cell.owd_p50_ns - trip;
    }
  }
}

/** The cell of the other direction. */
export function back(grid: Grid, index: number): Cell | undefined {
  const n = grid.names.length;
  return grid.cells[(index % n) * n + Math.floor(index / n)];
}

/** Half of the round trip: what anyone without synchronized clocks takes for the one-way delay. */
export function half(there: Cell, here: Cell | undefined): number | null {
  return !here || isLost(there) || isLost(here) || there.owd_p50_ns === null || here.owd_p50_ns === null ? null : (there.owd_p50_ns + here.owd_p50_ns) / 2;
}

/** One metric of every cell. */
export interface Values {
  metric: Metric;
  /** NaN: not probed; Infinity: probed, and not known; -Infinity: lost. */
  all: Float64Array;
  /** Those that are known, ascending. */
  known: Float64Array;
}

/** As `valueAt` says, of all cells. */
export function valuesOf(grid: Grid, metric: Metric): Values {
  const all = new Float64Array(grid.cells.length);
  const known = new Float64Array(grid.cells.length);
  let found = 0;
  for (let index = 0; index < all.length; index++) {
    const value = valueAt(grid, index, metric);
    const cell = grid.cells[index];
    all[index] = value === undefined ? NaN : (value ?? (cell && isLost(cell) ? -Infinity : Infinity));
    if (typeof value === "number") known[found++] = value;
  }
  return { metric, all, known: known.subarray(0, found).sort() };
}

export interface Scale {
  low: number;
  high: number;
  log: boolean;
}

/** From the 2nd to the 99.5th percentile, so that one outlier does not flatten the rest. */
export function scaleOf(sorted: Float64Array, metric: Metric): Scale {
  if (metric === "loss") return { low: 0, high: 1, log: false };
  const pick = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 1;
  if (metric === "skew") {
    const most = Math.max(1, Math.abs(pick(0.005)), Math.abs(pick(0.995)));
    return { low: -most, high: most, log: false };
  }
  const low = Math.max(1, pick(0.02));
  return { low, high: Math.max(low * 1.5, pick(0.995)), log: true };
}

/** Where a value lies on a scale, 0 to 1. */
export function place(value: number, { low, high, log }: Scale): number {
  const share = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, share));
}

type Colour = [number, number, number];
/** Dark blue over teal to yellow: order is seen without telling red from green (after viridis). */
const RAMP: Colour[] = [[38, 62, 108], [32, 98, 128], [33, 137, 130], [90, 173, 101], [196, 197, 63], [253, 231, 96]];
const LOSS: Colour[] = [[36, 112, 92], [236, 178, 88], [226, 92, 60], [160, 22, 60]];
const SKEW: Colour[] = [[38, 84, 166], [150, 180, 214], [226, 229, 232], [232, 170, 120], [176, 66, 24]];

export function colour(share: number, metric: Metric): Colour {
  const ramp = metric === "loss" ? LOSS : metric === "skew" ? SKEW : RAMP;
  const shown = metric === "loss" ? Math.sqrt(share) : share;
  const at = shown * (ramp.length - 1);
  const [from, to] = [ramp[Math.floor(at)], ramp[Math.min(ramp.length - 1, Math.floor(at) + 1)]];
  if (!from || !to) return [128, 128, 128];
  const part = at - Math.floor(at);
  return [0, 1, 2].map((n) => Math.round((from[n] ?? 0) + ((to[n] ?? 0) - (from[n] ?? 0)) * part)) as Colour;
}

/** Whether white is read better than black on a colour: by WCAG's relative luminance, white has the higher contrast below 0.179. */
export function isDark(red: number, green: number, blue: number): boolean {
  const [r = 0, g = 0, b = 0] = [red, green, blue].map((each) => (each <= 10 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179;
}

const STEPS = 256;

/** RGBA of each cell, row by row: `none` where nothing was probed, `unknown` where nothing is known, `lost` where most probes were lost. */
export function raster({ metric, all, known }: Values, { none, unknown, lost }: Record<"none" | "unknown" | "lost", Colour>): { pixels: Uint8ClampedArray<ArrayBuffer>; scale: Scale } {
  const scale = scaleOf(known, metric);
  const table = Uint32Array.from({ length: STEPS }, (_, n) => packed(colour(n / (STEPS - 1), metric)));
  const [absent, gap, dark] = [packed(none), packed(unknown), packed(lost)];
  const pixels = new Uint32Array(all.length);
  for (let index = 0; index < all.length; index++) {
    const value = all[index] ?? NaN;
    pixels[index] = Number.isNaN(value) ? absent : value === Infinity ? gap : value === -Infinity ? dark : (table[Math.round(place(value, scale) * (STEPS - 1))] ?? absent);
  }
  return { pixels: new Uint8ClampedArray(pixels.buffer), scale };
}

/** An opaque pixel, in this machine's order of bytes. */
const packed = ([red, green, blue]: Colour): number => new Uint32Array(Uint8Array.of(red, green, blue, 255).buffer)[0] ?? 0;

/** Pairs with the largest values that are known, the largest first. */
export function worst({ metric, all, known }: Values, most: number): number[] {
  const size = metric === "skew" ? Math.abs : (value: number) => value;
  const sorted = metric === "skew" ? known.map(Math.abs).sort() : known;
  const least = sorted[Math.max(0, sorted.length - most)] ?? Infinity;
  const found: number[] = [];
  for (let index = 0; index < all.length; index++) {
    const value = all[index] ?? NaN;
    if (Number.isFinite(value) && size(value) >= least) found.push(index);
  }
  return found.sort((a, b) => size(all[b] ?? 0) - size(all[a] ?? 0)).slice(0, most);
}

/** How many directions are lost, of how many, and the NICs that most of them have in common, with how many. */
export function lostOf(grid: Grid): { lost: number; probed: number; nics: [string, number][] } {
  const counts = new Map<string, number>();
  let [lost, probed] = [0, 0];
  for (const cell of grid.cells) {
    if (!cell) continue;
    probed += 1;
    if (!isLost(cell)) continue;
    lost += 1;
    for (const nic of [cell.src, cell.dst]) counts.set(nic, (counts.get(nic) ?? 0) + 1);
  }
  return { lost, probed, nics: [...counts].sort((a, b) => b[1] - a[1]) };
}
