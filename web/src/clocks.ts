/** What a timeline is worth, as `syntony.model.clocks.Timeline.bound_ns` computes it at `ref_ns`. */
import type { Timeline } from "./messages";

const BOUND_SIGMAS = 4;

/** Bound of the error of a timeline at its reference instant; null: unbounded. */
export function bound(line: Timeline): number | null {
  return line.state === "UNKNOWN" ? null : line.asymmetry_ns + BOUND_SIGMAS * line.sigma_ns;
}

/** Fleet time as the newest timeline has it; 0 without one. */
export const newest = (lines: readonly Timeline[]): number =>
  lines.reduce((most, line) => Math.max(most, line.ref_ns + line.offset_ns), 0);
