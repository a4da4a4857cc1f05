/** Delay: the matrix of one-way delays, half of the round trip beside it, loss, worst pairs, one pair. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { back, CLOCKS_NOT_KNOWN, colour, type Gap, gapOf, gapText, type Grid, isDark, isLost, LOST, lostOf, makeGrid, type Metric, NOT_MEASURED, railsOf, raster, type Scale, valueAt, type Values, valuesOf, worst } from "../delay/matrix";
import { clock, count, duration, instant, many, percent } from "../format";
import type { Cell, Matrix, Point } from "../messages";
import { Plot } from "../plot";
import { useQuery } from "../query";
import { choiceOf, href, instantOf, type Route, setQuery } from "../route";
import { token, useTheme } from "../theme";
import { Choice, Empty, Head, Loaded, Name, Panel, Table } from "../ui";

const METRICS = [["p50", "Median"], ["p99", "p99"], ["min", "Least"], ["half", "RTT/2"], ["skew", "One way − RTT/2"], ["loss", "Loss"]] as const;
const WINDOWS = [["10s", "10 s"], ["1m", "1 min"], ["10m", "10 min"], ["1h", "1 h"]] as const;
const LENGTH: Record<string, number> = { "10s": 10e9, "1m": 60e9, "10m": 600e9, "1h": 3600e9, "6h": 21_600e9, "1d": 86_400e9 };
const PAIR_WINDOWS = [...WINDOWS.slice(1), ["6h", "6 h"], ["1d", "24 h"]] as const;
const PAIR_POINTS = 1_500;
const BACK_MIN = 180;
const WORST = 25;

/** A value of a direction, or why there is none. */
function shown(grid: Grid, index: number, metric: Metric, words: (gap: Gap) => string = gapText): string {
  const [value, cell] = [valueAt(grid, index, metric), grid.cells[index]];
  if (value === undefined || !cell) return "not probed";
  if (value !== null) return metric === "loss" ? percent(value) : duration(value);
  const other = back(grid, index);
  if (cell.owd_p50_ns === null || isLost(cell)) return words(gapOf(cell, other));
  return other ? words(gapOf(other, cell)) : "not probed"; // half of the round trip needs both
}

export function Delay({ route }: { route: Route }) {
  const [, src, dst] = route.path;
  return src && dst ? <Pair key={`${src} ${dst}`} src={src} dst={dst} route={route} /> : <Whole route={route} />;
}

function Whole({ route }: { route: Route }) {
  const metric = choiceOf<Metric>(route.query["metric"], METRICS, "p50");
  const window = choiceOf(route.query["window"], WINDOWS, "10s");
  const rail = route.query["rail"] ?? "";
  const end = instantOf(route.query["end"]);
  const length = LENGTH[window] ?? 10e9;
  const every = end ? 0 : Math.min(60_000, Math.max(5_000, length / 4e6));
  const answer = useQuery<Matrix>("matrix", { window_ns: length, end_ns: end || undefined }, every ? { every } : {});
  const grid = useMemo(() => makeGrid(answer.data?.cells ?? [], rail), [answer.data, rail]);
  const values = useMemo(() => valuesOf(grid, metric), [grid, metric]);
  const rails = useMemo(() => railsOf(answer.data?.cells ?? []), [answer.data]);
  return (
    <>
      <Head title="Delay">
        <label>Rail <select value={rail} onChange={(event) => setQuery({ rail: event.currentTarget.value })}><option value="">all</option>{rails.map((each) => <option key={each}>{each}</option>)}</select></label>
        <Choice label="Window" value={window} options={WINDOWS} pick={(value) => setQuery({ window: value })} />
        <Choice label="What is shown" value={metric} options={METRICS} pick={(value) => setQuery({ metric: value })} />
      </Head>
      <div class="grid">
        <Panel title={<>{metric === "loss" ? "Loss" : "One-way delay"}, NIC × NIC <span class="crumb">rows send, columns receive</span></>} width="w7" flush>
          <Loaded answer={answer}>
            {() => grid.names.length ? <Heatmap grid={grid} values={values} end={end} /> : <Empty what="No probe was sent in that time." next={end ? "Move the slider to another time." : <>Agents begin seconds after they attach; <a href="#/overview">the overview</a> says which are there.</>} />}
          </Loaded>
          <TimeSlider end={end} />
        </Panel>
        <Panel title="Worst pairs" width="w5" flush>
          <Loaded answer={answer}>{() => <Worst grid={grid} values={values} end={end} />}</Loaded>
        </Panel>
      </div>
    </>
  );
}

function TimeSlider({ end }: { end: number }) {
  const now = useRef(Date.now() * 1e6);
  const minutes = end ? Math.max(-BACK_MIN, Math.round((end - now.current) / 60e9)) : 0;
  const [drawn, draw] = useState(minutes);
  useEffect(() => draw(minutes), [minutes]);
  return (
    <div class="body row">
      <label class="row"><span>Time</span>
        <input type="range" min={-BACK_MIN} max={0} step={1} value={drawn} aria-valuetext={drawn ? `${-drawn} minutes ago` : "now"}
          onInput={(event) => draw(Number(event.currentTarget.value))}
          onChange={(event) => { const at = Number(event.currentTarget.value); now.current = Date.now() * 1e6; setQuery({ end: at ? Math.round((now.current + at * 60e9) / 1e9) * 1e9 : undefined }); }} />
      </label>
      <span class="nowrap">{drawn === 0 ? "now" : end && drawn === minutes ? `until ${instant(end)}` : `${-drawn} min ago`}</span>
      {end > 0 && <button type="button" onClick={() => setQuery({ end: undefined })}>Now</button>}
    </div>
  );
}

/** The page of a pair, at the instant that the matrix is of; 0: now. */
const pairAt = ({ src, dst }: Cell, end: number) => href(["delay", src, dst], { end: end || undefined });

const LABEL_PX = 11;
/** Of a cell that has room for its number. */
const NUMBER_PX = 46;

function Heatmap({ grid, values, end }: { grid: Grid; values: Values; end: number }) {
  const { metric } = values;
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(640);
  const [at, setAt] = useState<number | null>(null);
  const theme = useTheme();
  const picture = useMemo(() => raster(values, { none: rgb(token("raised")), unknown: rgb(token("unknown")), lost: rgb(token("bad")) }), [values, theme]);
  const n = grid.names.length;
  const margin = (width - 20) / n >= LABEL_PX ? 76 : 8;
  const size = Math.max(80, Math.min(width - margin - 8, 680));
  const cell = size / n;
  useEffect(() => {
    if (!box.current) return;
    const sizes = new ResizeObserver(([entry]) => entry && setWidth(entry.contentRect.width));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current) drawMatrix(canvas.current, grid, picture.pixels, { margin, size, at, values });
  }, [grid, picture, margin, size, at]);
  const locate = (event: MouseEvent) => {
    const bounds = canvas.current?.getBoundingClientRect();
    if (!bounds) return null;
    const [column, row] = [Math.floor((event.clientX - bounds.left - margin) / cell), Math.floor((event.clientY - bounds.top - margin) / cell)];
    return column >= 0 && row >= 0 && column < n && row < n ? row * n + column : null;
  };
  const open = (index: number | null) => {
    const found = index === null ? undefined : grid.cells[index];
    if (found) location.hash = pairAt(found, end);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowUp: -n, ArrowDown: n, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter") open(at);
    else if (event.key === "Escape") setAt(null);
    else if (step !== undefined) setAt(Math.min(n * n - 1, Math.max(0, (at ?? -step) + step)));
    else return;
    event.preventDefault();
  };
  const x = margin + ((at ?? 0) % n) * cell;
  const y = margin + Math.floor((at ?? 0) / n) * cell;
  return (
    <div class="canvas" ref={box}>
      <canvas ref={canvas} tabIndex={0} role="application" aria-label={`Matrix of ${n} by ${n} NICs. Arrow keys move, Enter opens the pair; the table of worst pairs says the same in words.`}
        onMouseMove={(event) => setAt(locate(event))} onMouseLeave={() => setAt(null)} onClick={(event) => open(locate(event))} onKeyDown={keys} />
      {at !== null && <Tip grid={grid} index={at} left={x < width / 2 ? x + cell + 8 : x - 250} top={Math.max(0, y - 10)} />}
      <div class="body"><Legend metric={metric} scale={picture.scale} /></div>
      <span class="sr" role="status">{at !== null && describe(grid, at, metric)}</span>
    </div>
  );
}

function describe(grid: Grid, index: number, metric: Metric): string {
  const n = grid.names.length;
  return `${grid.names[Math.floor(index / n)]} to ${grid.names[index % n]}: ${shown(grid, index, metric)}`;
}

function Tip({ grid, index, left, top }: { grid: Grid; index: number; left: number; top: number }) {
  const n = grid.names.length;
  const cell = grid.cells[index];
  return (
    <div class="tip" style={{ left: `${left}px`, top: `${top}px` }}>
      <strong class="mono">{grid.names[Math.floor(index / n)]} → {grid.names[index % n]}</strong>
      {cell ? <CellFacts grid={grid} index={index} cell={cell} /> : <div class="muted">{Math.floor(index / n) === index % n ? "itself" : "not probed"}</div>}
    </div>
  );
}

function CellFacts({ grid, index, cell }: { grid: Grid; index: number; cell: Cell }) {
  return (
    <dl class="facts">
      <dt>Median</dt><dd>{shown(grid, index, "p50")}</dd>
      <dt>RTT/2</dt><dd>{shown(grid, index, "half")}</dd>
      <dt>p99</dt><dd>{shown(grid, index, "p99")}</dd>
      <dt>Lost</dt><dd>{percent(cell.sent ? cell.lost / cell.sent : null)} of {count(cell.sent)}</dd>
      <dt>Clock error, 1σ</dt><dd>{duration(cell.clk_err_ns)}</dd>
    </dl>
  );
}

function rgb(text: string): [number, number, number] {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function drawMatrix(canvas: HTMLCanvasElement, grid: Grid, pixels: Uint8ClampedArray<ArrayBuffer>, { margin, size, at, values }: { margin: number; size: number; at: number | null; values: Values }): void {
  const n = grid.names.length;
  const side = margin + size + 8;
  const ratio = devicePixelRatio;
  canvas.width = side * ratio;
  canvas.height = side * ratio;
  Object.assign(canvas.style, { width: `${side}px`, height: `${side}px` });
  const context = canvas.getContext("2d");
  if (!context || !n) return;
  const small = new OffscreenCanvas(n, n);
  small.getContext("2d")?.putImageData(new ImageData(pixels, n, n), 0, 0);
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, margin, margin, size, size);
  const cell = size / n;
  if (cell >= 6) gridLines(context, n, margin, size);
  if (cell >= LABEL_PX) labels(context, grid.names, margin, cell);
  if (cell >= NUMBER_PX) numbers(context, grid, values, pixels, margin, cell);
  if (at !== null) {
    context.strokeStyle = token("text");
    context.lineWidth = 2;
    context.strokeRect(margin + (at % n) * cell, margin + Math.floor(at / n) * cell, cell, cell);
  }
}

function gridLines(context: CanvasRenderingContext2D, n: number, margin: number, size: number): void {
  context.strokeStyle = token("surface");
  context.lineWidth = 1;
  context.beginPath();
  for (let each = 0; each <= n; each++) {
    const at = margin + (each * size) / n;
    context.moveTo(at, margin);
    context.lineTo(at, margin + size);
    context.moveTo(margin, at);
    context.lineTo(margin + size, at);
  }
  context.stroke();
}

function labels(context: CanvasRenderingContext2D, names: string[], margin: number, cell: number): void {
  context.fillStyle = token("muted");
  context.font = "10px system-ui";
  context.textBaseline = "middle";
  names.forEach((name, each) => {
    const text = name.length > 13 ? `${name.slice(0, 12)}…` : name;
    context.textAlign = "right";
    context.fillText(text, margin - 5, margin + (each + 0.5) * cell);
    context.save();
    context.translate(margin + (each + 0.5) * cell, margin - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(text, 0, 0);
    context.restore();
  });
}

/** The value of each cell in it, light on dark colours and dark on light ones. */
function numbers(context: CanvasRenderingContext2D, grid: Grid, { metric, all }: Values, pixels: Uint8ClampedArray, margin: number, cell: number): void {
  const n = grid.names.length;
  context.font = "11px system-ui";
  context.textAlign = "center";
  context.textBaseline = "middle";
  all.forEach((value, index) => {
    if (Number.isNaN(value)) return;
    const [red = 0, green = 0, blue = 0] = pixels.subarray(4 * index, 4 * index + 3);
    context.fillStyle = isDark(red, green, blue) ? "#ffffff" : "#000000";
    const text = shown(grid, index, metric, ([sign]) => sign);
    context.fillText(text, margin + ((index % n) + 0.5) * cell, margin + (Math.floor(index / n) + 0.5) * cell, cell - 4);
  });
}

function Legend({ metric, scale }: { metric: Metric; scale: Scale }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    for (let x = 0; x < 160; x++) {
      context.fillStyle = `rgb(${colour(x / 159, metric).join()})`;
      context.fillRect(x, 0, 1, 10);
    }
  }, [metric]);
  const text = (value: number) => (metric === "loss" ? percent(value) : duration(value));
  return (
    <div class="legend">
      <span>{text(scale.low)} <canvas ref={canvas} width={160} height={10} aria-hidden="true" /> {text(scale.high)}</span>
      {metric !== "loss" && <span><i style={{ background: "var(--bad)" }} />{LOST[1]} (more than half)</span>}
      <span><i style={{ background: "var(--unknown)" }} />{gapText(NOT_MEASURED)}{metric !== "loss" && `; ${gapText(CLOCKS_NOT_KNOWN)}`}</span>
      <span><i style={{ background: "var(--raised)", border: "1px solid var(--line-strong)" }} />not probed</span>
    </div>
  );
}

function Worst({ grid, values, end }: { grid: Grid; values: Values; end: number }) {
  const rows = useMemo(() => worst(values, WORST), [values]);
  const dark = useMemo(() => lostOf(grid), [grid]);
  const cell = (index: number) => grid.cells[index] as Cell;
  return (
    <>
    {dark.lost > 0 && <p class="problem">{dark.lost} of {many(dark.probed, "direction")} lose more than half of their probes; most often: {dark.nics.slice(0, 4).map(([nic, n]) => <span key={nic}><a href={href(["fabric", nic])}>{nic}</a> ({n}) </span>)}</p>}
    <Table label="Worst pairs" rows={rows} key_={(index) => index} empty={<Empty what="No pair has been measured in that time." />} columns={[
      { title: "From → to", cell: (index) => <Name to={pairAt(cell(index), end)}>{`${cell(index).src} →\u00a0${cell(index).dst}`}</Name> },
      { title: "Median", num: true, cell: (index) => shown(grid, index, "p50") },
      { title: "RTT/2", num: true, cell: (index) => shown(grid, index, "half") },
      { title: "p99", num: true, cell: (index) => shown(grid, index, "p99") },
      { title: "Lost", num: true, cell: (index) => percent(cell(index).sent ? cell(index).lost / cell(index).sent : null) },
    ]} />
    </>
  );
}

function Pair({ src, dst, route }: { src: string; dst: string; route: Route }) {
  const window = choiceOf(route.query["window"], PAIR_WINDOWS, "10m");
  const length = LENGTH[window] ?? 600e9;
  // Whole minutes where a point each second would be more than can be seen.
  const step = length > PAIR_POINTS * 1e9 ? 60e9 : 1e9;
  const end = instantOf(route.query["end"]);
  const asked = { window_ns: length, step_ns: step, end_ns: end || undefined };
  const again = end ? {} : { every: Math.max(5_000, step / 1e6) };
  const there = useQuery<{ points: Point[] }>("series", { src, dst, ...asked }, again);
  const here = useQuery<{ points: Point[] }>("series", { src: dst, dst: src, ...asked }, again);
  return (
    <>
      <Head title={<><span class="crumb"><a href="#/delay">Delay</a> / </span><span class="mono">{src} → {dst}</span></>}>
        {end > 0 && <><span class="nowrap">until {instant(end)}</span><button type="button" onClick={() => setQuery({ end: undefined })}>Now</button></>}
        <a class="button" href={href(["delay", dst, src], route.query)}>Other direction</a>
        <Choice label="Window" value={window} options={PAIR_WINDOWS} pick={(value) => setQuery({ window: value })} />
      </Head>
      <Loaded answer={there}>
        {({ points }) => {
          if (!points.length) return <Empty what="This pair was not probed in that time." next={<>NICs are probed within their rail. <a href="#/delay">The matrix</a> shows all pairs.</>} />;
          const times = points.map((each) => each.ts_ns);
          const other = new Map(here.data?.points.map((each) => [each.ts_ns, each.owd_p50_ns]));
          const trips = points.map((each) => { const found = other.get(each.ts_ns); return each.owd_p50_ns === null || found === null || found === undefined ? null : (each.owd_p50_ns + found) / 2; });
          return (
            <div class="stack">
              <Panel title="One-way delay">
                <Plot label={`One-way delay from ${src} to ${dst}`} times={times} span={length} height={240} show={duration} log lines={[
                  { label: "p99", values: points.map((each) => each.owd_p99_ns), colour: "warn" },
                  { label: "median", values: points.map((each) => each.owd_p50_ns), colour: "accent" },
                  { label: "RTT/2", values: trips, colour: "info", dash: true },
                  { label: "least", values: points.map((each) => each.owd_min_ns), colour: "line-strong" },
                ]} />
              </Panel>
              <Panel title="Loss"><Plot label="Share of probes lost" times={times} span={length} height={120} show={percent} zero lines={[{ label: "lost", values: points.map((each) => (each.sent ? each.lost / each.sent : null)), colour: "bad", fill: true }]} /></Panel>
              <p class="note">{many(points.length, "point")}, one each {duration(step)}, the newest at {clock(times.at(-1) ?? 0)}.</p>
            </div>
          );
        }}
      </Loaded>
    </>
  );
}
