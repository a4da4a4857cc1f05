/** Time series by uPlot, in the colours of the theme. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, instant } from "./format";
import { type Mark, rowsOf, ticksOf, within } from "./marks";
import { token, useTheme } from "./theme";

export interface Line {
  label: string;
  values: readonly (number | null)[];
  colour?: string;
  dash?: boolean;
  fill?: boolean;
}

export const SERIES = ["accent", "info", "warn", "unknown", "bad", "ok"];

/** `times` are instants in ns; `show` makes a value a text with its unit; `span` is the time in ns that was asked for, up to the newest instant; `zero`: the axis of values begins there. */
export function Plot(props: {
  label: string; times: readonly number[]; lines: Line[]; show: (value: number) => string; height?: number; marks?: Mark[]; log?: boolean; legend?: boolean; span?: number; zero?: boolean;
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const shape = `${theme}|${props.log}|${props.height}|${props.span}|${props.lines.map((line) => line.label).join("\u0000")}|${JSON.stringify(props.marks ?? [])}`;
  const data = [props.times.map((ns) => ns / 1e9), ...props.lines.map((line) => line.values.map((v) => (props.log && v !== null && v <= 0 ? null : v)))] as uPlot.AlignedData;

  useEffect(() => {
    if (!place.current) return;
    const made = new uPlot(options(props, place.current.clientWidth), data, place.current);
    showNewest(made);
    plot.current = made;
    const sizes = new ResizeObserver(([entry]) => entry && made.setSize({ width: entry.contentRect.width, height: props.height ?? 180 }));
    sizes.observe(place.current);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [props.times, props.lines]);
  return <div class="plot" ref={place} role="img" aria-label={props.label} />;
}

function options(props: Parameters<typeof Plot>[0], width: number): uPlot.Options {
  const axis = { stroke: token("muted"), grid: { stroke: token("line"), width: 1 }, ticks: { stroke: token("line"), width: 1, size: 4 }, font: "11px system-ui" };
  return {
    width,
    height: props.height ?? 180,
    cursor: { y: false },
    legend: { show: props.legend ?? props.lines.length > 1, live: true },
    scales: {
      x: { time: true, range: (_: uPlot, first: number | null, last: number | null) => within(first, last, props.span) },
      y: props.log ? { distr: 3, range: (_: uPlot, least: number | null, most: number | null) => [(least ?? 1) / 1.25, (most ?? 1) * 1.25] } : props.zero ? { range: (_: uPlot, __: number | null, most: number | null) => [0, most ? most * 1.1 : 0.01] } : {},
    },
    axes: [{ ...axis, size: 32, space: 70, values: (_: uPlot, ticks: number[]) => ticks.map((tick) => timeOf(tick, (ticks[1] ?? 60) - (ticks[0] ?? 0))) }, { ...axis, size: 66, ...(props.log ? { splits: (_: uPlot, __: number, low: number, high: number) => ticksOf(low, high), filter: (_: uPlot, splits: number[]) => splits } : {}), values: (_: uPlot, ticks: (number | null)[]) => ticks.map((tick) => (tick === null ? "" : props.show(tick))) }],
    series: [
      { value: (_: uPlot, at: number | null) => (at === null ? "–" : new Date(at * 1000).toLocaleTimeString("en-GB")) },
      ...props.lines.map((line, n) => {
        const stroke = token(line.colour ?? SERIES[n % SERIES.length] ?? "accent");
        return {
          label: line.label, stroke, width: 1.5, points: { show: line.values.length < 3, size: 4 },
          ...(line.dash ? { dash: [5, 4] } : {}), ...(line.fill ? { fill: `${stroke}22` } : {}),
          value: (_: uPlot, value: number | null) => (value === null ? "–" : props.show(value)),
        };
      }),
    ],
    hooks: { draw: [(made: uPlot) => drawMarks(made, props.marks ?? [])], setData: [showNewest], setCursor: [(made: uPlot) => (made.cursor.idx === null || (made.cursor.left ?? -1) < 0) && showNewest(made)] },
  };
}

/** The legend says the newest values while nobody points at others. */
function showNewest(made: uPlot): void {
  const last = (made.data[0]?.length ?? 0) - 1;
  if (last >= 0) made.setLegend({ idxs: made.data.map((values) => newestOf(values, last)) }, false);
}

function newestOf(values: ArrayLike<number | null | undefined>, last: number): number {
  for (let at = last; at > 0; at--) if (values[at] !== null && values[at] !== undefined) return at;
  return last;
}

/** An instant on an axis whose ticks are so many seconds apart. */
function timeOf(at: number, apart: number): string {
  if (!Number.isInteger(at)) return "";
  const text = clock(at * 1e9);
  return apart >= 86_400 ? instant(at * 1e9).slice(5, 10) : apart >= 60 ? text.slice(0, 5) : text;
}

function drawMarks(made: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.textAlign = "left";
  const size = 11 * devicePixelRatio;
  ctx.font = `${size}px system-ui`;
  const places = marks.map((mark) => made.valToPos(mark.at_ns / 1e9, "x", true));
  const gap = 4 * devicePixelRatio;
  const widths = marks.map((mark) => ctx.measureText(mark.label).width);
  // Whole at the right edge, too.
  const lefts = places.map((x, n) => Math.min(x + gap, bbox.left + bbox.width - (widths[n] ?? 0)));
  const rows = rowsOf(lefts, widths.map((width) => width + size));
  for (const [n, mark] of marks.entries()) {
    const x = places[n] ?? 0;
    const y = bbox.top + size * (1 + (rows[n] ?? 0) * 1.2);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = token(mark.tone || "muted");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    // Legible over a curve.
    ctx.setLineDash([]);
    ctx.strokeStyle = token("surface");
    ctx.lineWidth = 3 * devicePixelRatio;
    ctx.strokeText(mark.label, lefts[n] ?? 0, y);
    ctx.fillText(mark.label, lefts[n] ?? 0, y);
  }
  ctx.restore();
}
