/** Draws the map of a fabric on a canvas: as much of it as can be seen at that scale. */
import { byTone, type Palette } from "./palette";
import { type Box, type Detail, detailAt, ends, type Layout, type View } from "./layout";
import { cableName, type Known } from "./state";

export type By = "state" | "load" | "loss";
const MANY_CABLES = 1_500;
const MANY_BOXES = 600;

export interface Scene {
  layout: Layout;
  known: Map<string, Known>;
  by: By;
  chosen: number;
  cable: number;
}

/** One frame; `width` and `height` in CSS pixels. */
export function draw(context: CanvasRenderingContext2D, scene: Scene, view: View, width: number, height: number, palette: Palette): Detail {
  const ratio = devicePixelRatio;
  const detail = detailAt(view.scale);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.surface;
  context.fillRect(0, 0, width, height);
  context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, -view.x * view.scale * ratio, -view.y * view.scale * ratio);
  const seen = (box: { x: number; y: number; w: number; h: number }) =>
    box.x < view.x + width / view.scale && box.x + box.w > view.x && box.y < view.y + height / view.scale && box.y + box.h > view.y;
  groups(context, scene.layout, view, palette);
  cables(context, scene, view, palette);
  boxes(context, scene, detail, view, palette, seen);
  if (detail === "names" || view.scale > 0.35) names(context, scene, detail, view, palette, seen);
  return detail;
}

function groups(context: CanvasRenderingContext2D, layout: Layout, view: View, palette: Palette): void {
  context.fillStyle = palette.muted;
  const size = Math.min(13 / view.scale, 220);
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

function cables(context: CanvasRenderingContext2D, scene: Scene, view: View, palette: Palette): void {
  const { layout, known, by, chosen } = scene;
  const few = layout.cables.length <= MANY_CABLES;
  const batches = new Map<string, [number, number][]>();
  const put = (key: string, cable: [number, number]) => {
    const list = batches.get(key);
    if (list) list.push(cable);
    else batches.set(key, [cable]);
  };
  layout.cables.forEach((cable, n) => {
    const found = known.get(cableName(layout.boxes[cable[0]]?.name ?? "", layout.boxes[cable[1]]?.name ?? ""));
    const notable = (found && (found.tone === "bad" || found.tone === "warn" || (by === "load" && found.load !== undefined))) ?? false;
    if (n === scene.cable || cable.includes(chosen)) put(`2|${notable ? colourOf(found, by, palette) : palette.accent}`, cable);
    else if (notable) put(`2|${colourOf(found, by, palette)}`, cable);
    else if (few) put(`1|${palette.cable}`, cable);
  });
  for (const [key, list] of [...batches].sort()) {
    const [width, colour] = key.split("|");
    context.strokeStyle = colour ?? palette.cable;
    context.lineWidth = Number(width) / view.scale;
    context.beginPath();
    for (const [a, b] of list) {
      const [from, to] = ends(layout, a, b);
      context.moveTo(...from);
      context.lineTo(...to);
    }
    context.stroke();
  }
}

function boxes(context: CanvasRenderingContext2D, scene: Scene, detail: Detail, view: View, palette: Palette, seen: (box: Box) => boolean): void {
  const { layout, known, by, chosen } = scene;
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
  if (detail === "leaves") for (const [leaf, nics] of layout.nics) blockOf(layout, leaf, nics, scene, palette, put, seen);
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
    context.lineWidth = 2 / view.scale;
    const gap = 2 / view.scale;
    context.strokeRect(box.x - gap, box.y - gap, box.w + 2 * gap, box.h + 2 * gap);
  }
}

/** All NICs of a leaf as one block: each colour has its share of it, the worst at the top. */
function blockOf(layout: Layout, leaf: number, nics: number[], scene: Scene, palette: Palette, put: (colour: string, box: Box) => void, seen: (box: Box) => boolean): void {
  const [first, last, top] = [layout.boxes[nics[0] ?? -1], layout.boxes[nics[nics.length - 1] ?? -1], layout.boxes[leaf]];
  if (!first || !last || !top) return;
  const whole = { ...top, y: first.y, h: last.y + last.h - first.y };
  if (!seen(whole)) return;
  const counts = new Map<string, number>();
  for (const nic of nics) {
    const colour = colourOf(scene.known.get(layout.boxes[nic]?.name ?? ""), scene.by, palette);
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

function names(context: CanvasRenderingContext2D, scene: Scene, detail: Detail, view: View, palette: Palette, seen: (box: Box) => boolean): void {
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const box of scene.layout.boxes) {
    if (!seen(box) || (box.tier === "nic" && detail !== "names") || box.w * view.scale < 20) continue;
    const tone = scene.known.get(box.name)?.tone ?? "";
    context.fillStyle = box.tier === "nic" ? palette.onTone : tone === "" || tone === "ok" ? palette.onSwitch : palette.onTone;
    const size = Math.min(11, 11 / Math.max(1, view.scale * 0.8));
    context.font = `${box.tier === "nic" ? "" : "600 "}${size}px system-ui`;
    const text = box.tier === "nic" ? box.name.split("/")[0] ?? box.name : box.name;
    context.fillText(shorten(context, text, box.w - 4), box.x + box.w / 2, box.y + box.h / 2 + 0.5);
  }
}

function shorten(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let short = text;
  while (short.length > 1 && context.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return `${short}…`;
}
