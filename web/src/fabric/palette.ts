/** Colours of the map, from the design system's tokens. */
import type { Tone } from "../status";

export interface Palette {
  surface: string; text: string; muted: string; line: string; cable: string; accent: string; switch: string; onSwitch: string; onTone: string; none: string;
  ok: string; warn: string; bad: string; unknown: string; info: string;
  /** Colour of a share from 0 to 1: calm to hot. */
  heat: (share: number) => string;
  /** Worst first. */
  rank: (colour: string) => number;
}

const HEAT = ["#2f8f83", "#6fa652", "#c9a227", "#d9782d", "#c63d2f"];

export function paletteOf(token: (name: string) => string): Palette {
  const tone = { ok: token("ok"), warn: token("warn"), bad: token("bad"), unknown: token("unknown"), info: token("info") };
  const order = [tone.bad, ...HEAT.toReversed(), tone.warn, tone.unknown, tone.info, tone.ok];
  return {
    ...tone, surface: token("surface"), text: token("text"), muted: token("muted"), line: token("line"), cable: `${token("line-strong")}99`, accent: token("accent"),
    switch: token("muted"), onSwitch: token("surface"), onTone: token("surface"), none: token("line-strong"),
    heat: (share) => HEAT[Math.min(HEAT.length - 1, Math.floor(share * HEAT.length))] ?? HEAT[0]!,
    rank: (colour) => (order.indexOf(colour) + order.length + 1) % (order.length + 1),
  };
}

export const byTone = (tone: Tone, palette: Palette): string => (tone ? palette[tone] : palette.none);
