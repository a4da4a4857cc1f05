/** Draws the map of a fabric on a canvas: as much of it as can be seen at that scale. */
import { byTone, type Palette } from "./palette";
import { type Box, type Detail, detailAt, ends, type Layout, type View } from "./layout";
import type { Known } from "./state";

export type By = "state" | "load" | "loss";
const MANY_CABLES = 1_500;
const MANY_BOXES = 600;

export interface Scene {
  layout: Layout;
  known: Map<string, Known>;
  by: By;
  chosen: number;
  cable: number;
  palette: Palette;
}

/** What a canvas shows, in whole pixels of the device, so that what a pan moves is what would be drawn there. */
export interface Frame {
  scene: Scene;
  /** Pixels to a unit of the map. */
  unit: number;
  left: number;
  top: number;
  w: number;
  h: number;
}

export function frameOf(scene: Scene, view: View, ratio: number, w: number, h: number): Frame {
  const unit = view.scale * ratio;
  return { scene, unit, left: Math.round(view.x * unit), top: Math.round(view.y * unit), w, h };
}

/** Draws a frame. Where `last` is on the canvas and differs by a pan alone, it is moved, and only what came into sight is drawn. */
export function draw(context: CanvasRenderingContext2D, next: Frame, last: Frame | undefined, ratio: number): void {
  const shift = last && shiftOf(last, next);
  if (shift && (shift.dx || shift.dy)) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(context.canvas, shift.dx, shift.dy);
  }
  const areas = shift ? uncovered(shift, next.w, next.h) : [{ x: 0, y: 0, w: next.w, h: next.h }];
  for (const area of areas) drawArea(context, next, area, ratio);
}

export interface Area { x: number; y: number; w: number; h: number }

/** By how many pixels a frame is the last one, moved; undefined: it is another picture. */
export function shiftOf(last: Frame, next: Frame): { dx: number; dy: number } | undefined {
  const same = last.unit === next.unit && last.w === next.w && last.h === next.h && alike(last.scene, next.scene);
  return same ? { dx: last.left - next.left, dy: last.top - next.top } : undefined;
}

const alike = (one: Scene, other: Scene) => (Object.keys(other) as (keyof Scene)[]).every((name) => one[name] === other[name]);

/** Parts of a canvas that its own picture, moved, does not cover. */
export function uncovered({ dx, dy }: { dx: number; dy: number }, w: number, h: number): Area[] {
  const [across, down] = [Math.min(Math.abs(dx), w), Math.min(Math.abs(dy), h)];
  const side = { x: dx > 0 ? 0 : w - across, y: 0, w: across, h };
  const band = { x: dx > 0 ? across : 0, y: dy > 0 ? 0 : h - down, w: w - across, h: down };
  return [side, band].filter((each) => each.w && each.h);
}

function drawArea(context: CanvasRenderingContext2D, { scene, unit, left, top }: Frame, area: Area, ratio: number): void {
  const scale = unit / ratio;
  const detail = detailAt(scale);
  const [x, y] = [(left + area.x) / unit, (top + area.y) / unit];
  const [right, bottom] = [x + area.w / unit, y + area.h / unit];
  const seen = (box: Area) => box.x < right && box.x + box.w > x && box.y < bottom && box.y + box.h > y;
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.beginPath();
  context.rect(area.x, area.y, area.w, area.h);
  context.clip();
  context.fillStyle = scene.palette.surface;
  context.fillRect(area.x, area.y, area.w, area.h);
  context.setTransform(unit, 0, 0, unit, -left, -top);
  groups(context, scene, scale);
  cables(context, scene, scale, seen);
  boxes(context, scene, detail, scale, seen);
  if (detail === "names" || scale > 0.35) names(context, scene, detail, scale, seen);
  context.restore();
}

function groups(context: CanvasRenderingContext2D, { layout, palette }: Scene, scale: number): void {
  context.fillStyle = palette.muted;
  const size = Math.min(13 / scale, 220);
  context.font = `600 ${size}px system-ui`;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  for (const group of layout.groups) context.fillText(group.label, group.x, group.y + 15);
}

const colourOf = (known: Known | undefined, by: By, palette: Palette): string => {
  if (by === "load") return known?.load === undefined ? palette.line : palette.heat(known.load);
  if (by === "loss") return known?.loss === undefined ? palette.none : known.loss === 0 ? palette.ok : palette.heat(Math.min(1, 0.3 + Math.sqrt(known.loss)));
  return byTone(known?.tone ?? "", palette);
};

type Seen = (box: Area) => boolean;

type Batches = [key: string, list: [number, number][]][];
let kept: { scene: Scene; batches: Batches } | undefined;

/** Cables by how they are drawn: width and colour. Kept for the frames of a scene, of which a pan has many. */
function batchesOf(scene: Scene): Batches {
  if (kept && alike(kept.scene, scene)) return kept.batches;
  const { layout, known, by, chosen, palette } = scene;
  const few = layout.cables.length <= MANY_CABLES;
  const batches = new Map<string, [number, number][]>();
  const put = (key: string, cable: [number, number]) => {
    const list = batches.get(key);
    if (list) list.push(cable);
    else batches.set(key, [cable]);
  };
  layout.cables.forEach((cable, n) => {
    const found = known.get(layout.cableNames[n] ?? "");
    const notable = (found && (found.tone === "bad" || found.tone === "warn" || (by === "load" && found.load !== undefined))) ?? false;
    if (n === scene.cable || cable.includes(chosen)) put(`2|${notable ? colourOf(found, by, palette) : palette.accent}`, cable);
    else if (notable) put(`2|${colourOf(found, by, palette)}`, cable);
    else if (few) put(`1|${palette.cable}`, cable);
  });
  kept = { scene, batches: [...batches].sort(([a], [b]) => (a < b ? -1 : 1)) };
  return kept.batches;
}

function cables(context: CanvasRenderingContext2D, scene: Scene, scale: number, seen: Seen): void {
  const { layout, palette } = scene;
  for (const [key, list] of batchesOf(scene)) {
    const [width, colour] = key.split("|");
    context.strokeStyle = colour ?? palette.cable;
    const wide = (context.lineWidth = Number(width) / scale);
    context.beginPath();
    for (const [a, b] of list) {
      const [from, to] = ends(layout, a, b);
      if (!seen({ x: Math.min(from[0], to[0]) - wide, y: from[1] - wide, w: Math.abs(from[0] - to[0]) + 2 * wide, h: to[1] - from[1] + 2 * wide })) continue;
      context.moveTo(...from);
      context.lineTo(...to);
    }
    context.stroke();
  }
}

function boxes(context: CanvasRenderingContext2D, scene: Scene, detail: Detail, scale: number, seen: Seen): void {
  const { layout, known, by, chosen, palette } = scene;
  const batches = new Map<string, Box[]>();
  const put = (colour: string, box: Box) => {
    const list = batches.get(colour);
    if (list) list.push(box);
    else batches.set(colour, [box]);
  };
  for (const box of layout.boxes) {
    if (box.tier === "nic" && detail === "leaves") continue;
    if (!seen(box)) continue;
    if (box.tier === "nic") put(colourOf(known.get(box.name), by, palette), box);
    else put(known.get(box.name)?.tone ? byTone(known.get(box.name)?.tone ?? "", palette) : palette.switch, box);
  }
  if (detail === "leaves") for (const [leaf, nics] of layout.nics) blockOf(leaf, nics, scene, put, seen);
  for (const [colour, list] of batches) {
    // Single rectangles: a path of thousands is scan-converted as a whole, which is slower.
    context.fillStyle = colour;
    if (layout.boxes.length > MANY_BOXES) for (const box of list) context.fillRect(box.x, box.y, box.w, box.h);
    else {
      context.beginPath();
      for (const box of list) context.roundRect(box.x, box.y, box.w, box.h, 2.5);
      context.fill();
    }
  }
  const box = layout.boxes[chosen];
  if (box) {
    context.strokeStyle = palette.text;
    context.lineWidth = 2 / scale;
    const gap = 2 / scale;
    context.strokeRect(box.x - gap, box.y - gap, box.w + 2 * gap, box.h + 2 * gap);
  }
}

/** All NICs of a leaf as one block: each colour has its share of it, the worst at the top. */
function blockOf(leaf: number, nics: number[], { layout, known, by, palette }: Scene, put: (colour: string, box: Box) => void, seen: Seen): void {
  const [first, last, top] = [layout.boxes[nics[0] ?? -1], layout.boxes[nics[nics.length - 1] ?? -1], layout.boxes[leaf]];
  if (!first || !last || !top) return;
  const whole = { ...top, y: first.y, h: last.y + last.h - first.y };
  if (!seen(whole)) return;
  const counts = new Map<string, number>();
  for (const nic of nics) {
    const colour = colourOf(known.get(layout.boxes[nic]?.name ?? ""), by, palette);
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  let y = whole.y;
  const sorted = [...counts].sort(([a], [b]) => palette.rank(a) - palette.rank(b));
  sorted.forEach(([colour, n], each) => {
    // One bad NIC of many must be seen: no share is thinner than a fifth.
    const share = sorted.length > 1 && each < sorted.length - 1 ? Math.max(0.2, n / nics.length) : 1;
    const h = Math.min(whole.y + whole.h - y, share * whole.h);
    put(colour, { ...whole, y, h });
    y += h;
  });
}

function names(context: CanvasRenderingContext2D, { layout, known, palette }: Scene, detail: Detail, scale: number, seen: Seen): void {
  context.textAlign = "center";
  context.textBaseline = "middle";
  let font = "";
  for (const box of layout.boxes) {
    const nic = box.tier === "nic";
    if ((nic && detail !== "names") || box.w * scale < 20 || !seen(box)) continue;
    const weight = nic ? 400 : 600;
    const text = nic ? box.name.split("/")[0] ?? box.name : box.name;
    // A name that is cut says less than none: those of a block begin alike.
    const size = sizeOf((box.w - 3) * scale, widthOf(context, text, weight)) / scale;
    if (!size) continue;
    const next = `${weight} ${size}px system-ui`;
    if (next !== font) context.font = font = next;
    const tone = known.get(box.name)?.tone ?? "";
    context.fillStyle = nic ? palette.onTone : tone === "" || tone === "ok" ? palette.onSwitch : palette.onTone;
    context.fillText(text, box.x + box.w / 2, box.y + box.h / 2 + 0.5);
  }
}

const LARGEST_PX = 13;
const SMALLEST_PX = 7.5;

/** Pixels of the screen that a name's letters may have where there is so much room; 0: too little. */
export function sizeOf(room: number, width: number): number {
  const size = Math.min(LARGEST_PX, Math.floor((2 * room) / width) / 2);
  return size < SMALLEST_PX ? 0 : size;
}

const widths = new Map<string, number>();
const MANY_WIDTHS = 50_000;

/** Of a text in letters of one pixel. */
function widthOf(context: CanvasRenderingContext2D, text: string, weight: number): number {
  const key = `${weight} ${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    const before = context.font;
    context.font = `${weight} 100px system-ui`;
    found = context.measureText(text).width / 100;
    context.font = before;
    if (widths.size > MANY_WIDTHS) widths.clear();
    widths.set(key, found);
  }
  return found;
}
