/** Where devices of a fabric stand on the map: NICs in blocks below their leaf, leaves by rail,
 *  spines and cores above. Pure; lengths are units of the map, about a pixel at scale 1. */
import { byName } from "../format";
import type { FabricMap } from "../messages";
import { cableName } from "./state";

export type Tier = "core" | "spine" | "leaf" | "nic";

export interface Box {
  name: string;
  tier: Tier;
  x: number;
  y: number;
  w: number;
  h: number;
  /** Of a NIC: index of its leaf, -1 where that is not known. Of a leaf: of itself. */
  leaf: number;
}
export interface Group {
  label: string;
  x: number;
  y: number;
  w: number;
  h: number;
}
export interface Layout {
  boxes: Box[];
  at: Map<string, number>;
  /** Between switches: indices of both ends. */
  cables: [number, number][];
  /** Of each of them. */
  cableNames: string[];
  /** Of leaves: indices of their NICs. */
  nics: Map<number, number[]>;
  groups: Group[];
  w: number;
  h: number;
}

export const NIC = { w: 30, h: 18, gap: 4 };
const SWITCH_H = 24;
const LEAF_GAP = 20;
const GROUP_GAP = 56;
const TIER_GAP = 64;
const TITLE_H = 20;
const ASPECT = 1.9;
const HIGH: Record<string, Tier> = { core: "core", spine: "spine", agg: "spine" };

/** The rail of a NIC or leaf: `rail0` of `h3/rail0`. */
const railOf = (nic: string) => nic.slice(nic.indexOf("/") + 1);

export function layoutOf(map: FabricMap, unplaced: readonly string[] = []): Layout {
  const kinds = new Map(map.devices.map((each) => [each.name, each.kind]));
  const homes = new Map<string, string>();
  for (const [a, b] of map.cables) {
    if (kinds.get(a) === "nic" && kinds.get(b) !== "nic") homes.set(a, b);
    else if (kinds.get(b) === "nic" && kinds.get(a) !== "nic") homes.set(b, a);
  }
  const leaves = new Map<string, string[]>();
  for (const [name, kind] of kinds) if (kind === "leaf") leaves.set(name, []);
  for (const [nic, leaf] of homes) push(leaves, leaf, nic);
  const high = map.devices.filter((each) => each.kind !== "nic" && each.kind !== "host" && !leaves.has(each.name));
  const lost = [...new Set([...map.devices.filter((each) => each.kind === "nic").map((each) => each.name), ...unplaced])].filter((nic) => !homes.has(nic)).sort(byName);
  const made: Layout = { boxes: [], at: new Map(), cables: [], cableNames: [], nics: new Map(), groups: [], w: 0, h: 0 };
  const tops = (["core", "spine"] as const).map((tier) => [tier, high.filter((each) => (HIGH[each.kind] ?? "spine") === tier).map((each) => each.name).sort(byName)] as const).filter(([, names]) => names.length);
  const top = tops.length * (SWITCH_H + TIER_GAP);
  placeGroups(made, grouped(leaves), lost, top);
  tops.forEach(([tier, names], row) => placeRow(made, tier, names, row * (SWITCH_H + TIER_GAP)));
  made.boxes.forEach((box, n) => made.at.set(box.name, n));
  for (const [a, b] of map.cables) {
    const [from, to] = [made.at.get(a), made.at.get(b)];
    if (from !== undefined && to !== undefined && kinds.get(a) !== "nic" && kinds.get(b) !== "nic") {
      made.cables.push([from, to]);
      made.cableNames.push(cableName(a, b));
    }
  }
  return made;
}

function push<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** Leaves by the rail that most of their NICs are of. */
function grouped(leaves: Map<string, string[]>): [string, [string, string[]][]][] {
  const rails = new Map<string, [string, string[]][]>();
  for (const [leaf, nics] of [...leaves].sort(([a], [b]) => byName(a, b))) {
    const votes = new Map<string, number>();
    for (const nic of nics) votes.set(railOf(nic), (votes.get(railOf(nic)) ?? 0) + 1);
    const rail = [...votes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "other";
    push(rails, rail, [leaf, nics.sort(byName)]);
  }
  return [...rails].sort(([a], [b]) => byName(a, b));
}

function placeGroups(made: Layout, groups: [string, [string, string[]][]][], lost: string[], top: number): void {
  const most = Math.max(1, ...groups.flatMap(([, leaves]) => leaves.map(([, nics]) => nics.length)));
  const columns = most <= 6 ? Math.max(2, most) : Math.max(4, Math.ceil(Math.sqrt(most * 1.2)));
  const block = { w: columns * (NIC.w + NIC.gap) - NIC.gap, h: SWITCH_H + 8 + Math.ceil(most / columns) * (NIC.h + NIC.gap) };
  const widest = Math.max(1, ...groups.map(([, leaves]) => leaves.length));
  const shape = bestShape(groups.length, widest, block, top);
  const size = { w: shape.leaves * (block.w + LEAF_GAP) - LEAF_GAP, h: TITLE_H + Math.ceil(widest / shape.leaves) * (block.h + LEAF_GAP) };
  groups.forEach(([label, leaves], n) => {
    const x = (n % shape.groups) * (size.w + GROUP_GAP);
    const y = top + Math.floor(n / shape.groups) * (size.h + GROUP_GAP / 2);
    made.groups.push({ label, x, y, ...size });
    leaves.forEach(([leaf, nics], each) => {
      placeLeaf(made, leaf, nics, columns, block.w, x + (each % shape.leaves) * (block.w + LEAF_GAP), y + TITLE_H + Math.floor(each / shape.leaves) * (block.h + LEAF_GAP));
    });
  });
  made.w = Math.max(1, Math.min(groups.length, shape.groups) * (size.w + GROUP_GAP) - GROUP_GAP);
  made.h = top + Math.ceil(groups.length / shape.groups) * (size.h + GROUP_GAP / 2) - GROUP_GAP / 2 - LEAF_GAP;
  if (lost.length) placeLost(made, lost);
}

/** How many rails stand side by side, and leaves of a rail: as near to a screen's shape as may be. */
function bestShape(groups: number, leaves: number, block: { w: number; h: number }, top: number): { groups: number; leaves: number } {
  let best = { groups: Math.max(1, groups), leaves, off: Infinity };
  for (let across = 1; across <= Math.max(1, groups); across++)
    for (let row = 1; row <= leaves; row++) {
      const w = across * (row * (block.w + LEAF_GAP) + GROUP_GAP);
      const h = top + Math.ceil(groups / across) * (Math.ceil(leaves / row) * (block.h + LEAF_GAP) + TITLE_H + GROUP_GAP / 2);
      // Rows of leaves below each other hide cables: only where the map would be a thin strip.
      const off = Math.abs(Math.log(w / h / ASPECT)) + (row < leaves ? 0.8 : 0) + (across < groups ? 0.5 : 0);
      if (off < best.off) best = { groups: across, leaves: row, off };
    }
  return best;
}

function placeLeaf(made: Layout, leaf: string, nics: string[], columns: number, w: number, x: number, y: number): void {
  const at = made.boxes.length;
  made.boxes.push({ name: leaf, tier: "leaf", x, y, w, h: SWITCH_H, leaf: at });
  made.nics.set(at, nics.map((nic, n) => {
    made.boxes.push({ name: nic, tier: "nic", x: x + (n % columns) * (NIC.w + NIC.gap), y: y + SWITCH_H + 8 + Math.floor(n / columns) * (NIC.h + NIC.gap), w: NIC.w, h: NIC.h, leaf: at });
    return made.boxes.length - 1;
  }));
}

/** NICs of which no path has been learnt: below everything else. */
function placeLost(made: Layout, lost: string[]): void {
  const columns = Math.max(8, Math.floor(made.w / (NIC.w + NIC.gap)));
  const y = made.h + LEAF_GAP + GROUP_GAP / 2 + 8;
  lost.forEach((name, n) => made.boxes.push({ name, tier: "nic", x: (n % columns) * (NIC.w + NIC.gap), y: y + TITLE_H + Math.floor(n / columns) * (NIC.h + NIC.gap), w: NIC.w, h: NIC.h, leaf: -1 }));
  const h = TITLE_H + Math.ceil(lost.length / columns) * (NIC.h + NIC.gap);
  made.w = Math.max(made.w, Math.min(columns, lost.length) * (NIC.w + NIC.gap));
  made.groups.push({ label: "place not learnt yet", x: 0, y, w: made.w, h });
  made.h = y + h;
}

function placeRow(made: Layout, tier: Tier, names: string[], y: number): void {
  const w = Math.min(96, Math.max(24, made.w / names.length - 12));
  const step = made.w / names.length;
  names.forEach((name, n) => made.boxes.push({ name, tier, x: step * (n + 0.5) - w / 2, y, w, h: SWITCH_H, leaf: -1 }));
}

export interface View {
  /** Map coordinates of the left upper corner of what is seen. */
  x: number;
  y: number;
  scale: number;
}

const MAX_FIT = 2.4;

/** The whole map in so many pixels. */
export function fit(layout: Layout, width: number, height: number): View {
  const pad = 24;
  const scale = Math.min((width - 2 * pad) / layout.w, (height - 2 * pad) / layout.h, MAX_FIT);
  return { scale, x: layout.w / 2 - width / scale / 2, y: layout.h / 2 - height / scale / 2 };
}

/** Zoom by a factor so that the point at (px, py) stays where it is. */
export function zoom(view: View, factor: number, px: number, py: number): View {
  const scale = Math.min(4, Math.max(0.002, view.scale * factor));
  return { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
}

/** How much is drawn: whole leaves, NICs without names, NICs with names. */
export type Detail = "leaves" | "nics" | "names";

export function detailAt(scale: number): Detail {
  const width = NIC.w * scale;
  return width < 2.5 ? "leaves" : width < 20 ? "nics" : "names";
}

/** Index of the box at a point of the map; NICs only where they are drawn. */
export function boxAt(layout: Layout, x: number, y: number, detail: Detail): number {
  for (let n = layout.boxes.length - 1; n >= 0; n--) {
    const box = layout.boxes[n];
    if (box && (detail !== "leaves" || box.tier !== "nic") && x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h) return n;
  }
  return -1;
}

/** Index of the cable that passes nearest to a point, within a distance; -1: none. */
export function cableAt(layout: Layout, x: number, y: number, within: number): number {
  let best = -1;
  let least = within;
  layout.cables.forEach(([a, b], n) => {
    const [from, to] = ends(layout, a, b);
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const part = Math.min(1, Math.max(0, ((x - from[0]) * dx + (y - from[1]) * dy) / (dx * dx + dy * dy || 1)));
    const away = Math.hypot(from[0] + part * dx - x, from[1] + part * dy - y);
    if (away < least) [least, best] = [away, n];
  });
  return best;
}

/** Where a cable leaves the upper device and enters the lower one. */
export function ends(layout: Layout, a: number, b: number): [[number, number], [number, number]] {
  const [one, other] = [layout.boxes[a], layout.boxes[b]];
  if (!one || !other) return [[0, 0], [0, 0]];
  const [upper, lower] = one.y <= other.y ? [one, other] : [other, one];
  return [[upper.x + upper.w / 2, upper.y + upper.h], [lower.x + lower.w / 2, lower.y]];
}
