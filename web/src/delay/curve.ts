/** A NIC's delay over time: of all its peers together, the usual one and the slowest. Pure. */
import type { Point } from "../messages";

export interface Curve {
  /** Instants, ns, ascending. */
  times: number[];
  /** Median of its peers' medians; null where nothing arrived. */
  usual: (number | null)[];
  /** Largest of its peers' medians. */
  slowest: (number | null)[];
  /** Share of its probes that were lost; null where none were sent. */
  lost: (number | null)[];
}

/** Of the points of one direction, those of all peers at each of `times`, or at their own. */
export function curveOf(points: readonly Point[], wanted?: readonly number[]): Curve {
  const at = new Map<number, Point[]>();
  for (const each of points) at.set(each.ts_ns, [...(at.get(each.ts_ns) ?? []), each]);
  const times = wanted ? [...wanted] : [...at.keys()].sort((a, b) => a - b);
  const of = times.map((time) => at.get(time) ?? []);
  const delays = of.map((each) => each.map((point) => point.owd_p50_ns).filter((delay) => delay !== null).sort((a, b) => a - b));
  const sum = (each: readonly Point[], name: "sent" | "lost") => each.reduce((total, point) => total + point[name], 0);
  return {
    times,
    usual: delays.map((each) => (each.length ? ((each[(each.length - 1) >> 1] as number) + (each[each.length >> 1] as number)) / 2 : null)),
    slowest: delays.map((each) => each.at(-1) ?? null),
    lost: of.map((each) => (sum(each, "sent") ? sum(each, "lost") / sum(each, "sent") : null)),
  };
}

/** Between two points: some 150 of them, in whole minutes, which are read as they are kept. */
export const stepOf = (length: number): number => Math.max(60e9, Math.ceil(length / 150 / 60e9) * 60e9);
