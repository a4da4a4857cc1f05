/** What happened to a job, as marks on its charts, and how long an axis of time is. */
import { doneOf, isFailure } from "./episodes";
import { duration, many } from "./format";
import type { Incident, JobReport, Move, PathEvent, Takeover } from "./messages";

export interface Mark {
  at_ns: number;
  label: string;
  tone: string;
}

/** Of events within this share of the window one is marked, and says how many there are: labels must stay legible. */
const APART = 1 / 15;
const TONES = ["bad", "warn", "ok", "info"];

/** Faults, lost and replaced ranks, failovers and moves within the report's window, in their order. */
export function marksOf(report: JobReport, events: readonly PathEvent[], moves: readonly Move[], incidents: readonly Incident[]): Mark[] {
  const found = [
    ...report.verdicts.map((each) => ({ at_ns: each.onset_ns, label: each.class, tone: "bad" })),
    ...incidents.map((each) => ({ at_ns: each.opened_ns, label: each.rule, tone: "bad" })),
    ...ofTakeovers(report.takeovers),
    ...events.filter(isFailure).map((each) => ({ at_ns: each.ts_ns, label: doneOf(each.action), tone: "warn" })),
    ...moves.map((each) => ({ at_ns: each.ts_ns, label: `move: ${each.result}`, tone: "info" })),
  ].filter((each) => each.at_ns >= report.begin_ns && each.at_ns <= report.end_ns).sort((a, b) => a.at_ns - b.at_ns);
  return together(found, (report.end_ns - report.begin_ns) * APART);
}

/** A loss and what came of it are two marks: between them the job stood still. */
function ofTakeovers(takeovers: readonly Takeover[]): Mark[] {
  const byGeneration = new Map<string, Takeover[]>();
  for (const each of takeovers)
    if (each.what !== "verified") {
      const key = `${each.what} ${each.generation} ${each.ts_ns}`;
      byGeneration.set(key, [...(byGeneration.get(key) ?? []), each]);
    }
  return [...byGeneration.values()].flatMap((some) => {
    const [first] = some;
    if (!first) return [];
    const who = some.length > 1 ? many(some.length, "rank") : first.rank < 0 ? "job" : `rank ${first.rank}`;
    if (first.what !== "replaced") return [{ at_ns: first.ts_ns, label: `${who} ${first.what}`, tone: "bad" }];
    const lost = { at_ns: first.ts_ns - first.stall_ns, label: `${who} lost: ${first.reason}`, tone: "bad" };
    return [lost, { at_ns: first.ts_ns, label: `replaced after ${duration(first.stall_ns)}`, tone: "ok" }];
  });
}

/** In which line under each other labels go that begin there and are so wide: none is written over another. */
export function rowsOf(begins: readonly number[], widths: readonly number[]): number[] {
  const ends: number[] = [];
  return begins.map((begin, n) => {
    const free = ends.findIndex((end) => end <= begin);
    const row = free < 0 ? ends.length : free;
    ends[row] = begin + (widths[n] ?? 0);
    return row;
  });
}

function together(marks: readonly Mark[], apart_ns: number): Mark[] {
  const groups: Mark[][] = [];
  for (const mark of marks) {
    const group = groups.at(-1);
    if (group && mark.at_ns - (group[0]?.at_ns ?? 0) <= apart_ns) group.push(mark);
    else groups.push([mark]);
  }
  return groups.flatMap((group) => {
    const worst = group.reduce((a, b) => (TONES.indexOf(b.tone) < TONES.indexOf(a.tone) ? b : a));
    const more = new Set(group.map((each) => each.label)).size - 1;
    return [{ ...worst, label: more > 0 ? `${worst.label} (+${more})` : worst.label }];
  });
}

/** From where to where an axis of time goes, in seconds: all of the time that was asked for, or what is there. */
export function within(first: number | null, last: number | null, span = 0): [number, number] {
  const end = last ?? 0;
  const begin = Math.min(first ?? end, end - span / 1e9);
  return begin < end ? [begin, end] : [end - 30, end + 30];
}

/** Ticks of a logarithmic axis: decades, within two of them also 2 and 5, within half of one all digits. */
export function ticksOf(low: number, high: number): number[] {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const digits = high / low < 4 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : high / low < 100 ? [1, 2, 5] : [1];
  return Array.from({ length: to - from + 1 }, (_, n) => n + from)
    .flatMap((power) => digits.map((digit) => digit * 10 ** power))
    .filter((value) => value >= low * 0.999 && value <= high * 1.001);
}
