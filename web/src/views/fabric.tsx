/** Fabric: the map by rail, the same as a list, and a page for each device, NIC and link. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type By, draw, type Frame, frameOf } from "../fabric/draw";
import { boxAt, cableAt, type Detail, detailAt, fit, type Layout, layoutOf, type View, zoom } from "../fabric/layout";
import { paletteOf } from "../fabric/palette";
import { type Known, knownOf } from "../fabric/state";
import { byName, count, percent } from "../format";
import type { FabricMap, Findings, Fleet, Incidents, Links, Matrix, Queues, Traffic } from "../messages";
import { useQuery } from "../query";
import { choiceOf, href, type Route, setQuery } from "../route";
import { token, useTheme } from "../theme";
import { Badge, Choice, Empty, Head, Loaded, Name, Panel, Table } from "../ui";
import { DevicePage } from "./device";

const BY = [["state", "State"], ["load", "Load"], ["loss", "Loss"]] as const;
const SHOW = [["map", "Map"], ["list", "List"]] as const;

export function Fabric({ route }: { route: Route }) {
  return route.path[1] ? <DevicePage key={route.path[1]} name={route.path[1]} route={route} /> : <Whole route={route} />;
}

/** Everything that colours the map. */
export function useKnown(): { known: Map<string, Known>; fleet: Fleet | undefined } {
  const fleet = useQuery<Fleet>("fleet", {}, { on: ["fleet"], every: 15_000 }).data;
  const links = useQuery<Links>("links", {}, { on: ["fleet", "incidents"], every: 10_000 }).data;
  const findings = useQuery<Findings>("findings", {}, { on: ["incidents"], every: 5_000 }).data;
  const queues = useQuery<Queues>("queues", {}, { every: 5_000 }).data;
  const incidents = useQuery<Incidents>("incidents", {}, { on: ["incidents"] }).data;
  const traffic = useQuery<Traffic>("traffic", {}, { on: ["jobs"], every: 5_000 }).data;
  const matrix = useQuery<Matrix>("matrix", { window_ns: 10e9 }, { every: 10_000 }).data;
  const known = useMemo(
    () => knownOf({ ports: links?.ports ?? [], nowNs: links?.now_ns ?? 0, fleet, findings: findings?.findings ?? [], queues: queues?.queues ?? [], incidents: incidents?.incidents ?? [], loads: traffic?.links ?? [], matrix }),
    [fleet, links, findings, queues, incidents, traffic, matrix],
  );
  return { known, fleet };
}

function Whole({ route }: { route: Route }) {
  const map = useQuery<FabricMap>("topology", {}, { on: ["fleet"], every: 60_000 });
  const { known, fleet } = useKnown();
  const by = choiceOf<By>(route.query["by"], BY, "state");
  const show = choiceOf(route.query["show"], SHOW, "map");
  const nics = useMemo(() => fleet?.agents.flatMap((agent) => agent.nics.map((nic) => `${agent.host}/${nic.name}`)) ?? [], [fleet]);
  const layout = useMemo(() => (map.data ? layoutOf(map.data, nics) : undefined), [map.data, nics]);
  return (
    <>
      <Head title="Fabric">
        <Find layout={layout} />
        <Choice label="Colour by" value={by} options={BY} pick={(value) => setQuery({ by: value })} />
        <Choice label="Shown as" value={show} options={SHOW} pick={(value) => setQuery({ show: value })} />
      </Head>
      <Loaded answer={map}>
        {() => {
          if (!layout?.boxes.length) return <Panel title="Map"><Empty what="No path has been learnt yet." next="Agents trace the paths of their probes within a minute after they attach." /></Panel>;
          return show === "map"
            ? <div class="stack"><Panel title={<>{count(layout.boxes.filter((each) => each.tier === "nic").length)} NICs, {count(layout.boxes.filter((each) => each.tier !== "nic").length)} switches <span class="crumb">{map.data?.configured ? "by the topology file" : "as learnt paths show them"}</span></>} flush tools={<MapLegend by={by} />}><MapCanvas layout={layout} known={known} by={by} chosen={route.query["at"] ?? ""} /></Panel><Devices title="Not well, worst first" layout={layout} known={known} bad /></div>
            : <Devices title="Devices and cables, worst first" layout={layout} known={known} />;
        }}
      </Loaded>
    </>
  );
}

function Find({ layout }: { layout: Layout | undefined }) {
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("name") ?? "").trim();
    const found = layout?.boxes.find((each) => each.name === text) ?? layout?.boxes.find((each) => each.name.startsWith(text));
    if (found) setQuery({ at: found.name, show: "map" });
  };
  return <form class="row" onSubmit={find}><label><span class="sr">Find a device</span><input type="search" name="name" placeholder="Find h3/rail0, leaf0-1 …" /></label></form>;
}

export function MapLegend({ by }: { by: By }) {
  if (by !== "state") return <span class="legend">{by === "load" ? "Managed flows over capacity: " : "Probes lost: "}<span><i style={{ background: "#2f8f83" }} />low</span><span><i style={{ background: "#c9a227" }} />half</span><span><i style={{ background: "#c63d2f" }} />high</span><span><i style={{ background: "var(--line-strong)" }} />unknown</span></span>;
  return <span class="legend">{(["ok", "warn", "bad", "unknown"] as const).map((tone) => <span key={tone}><i style={{ background: `var(--${tone})` }} />{{ ok: "up", warn: "waits or warning", bad: "down or to blame", unknown: "unknown or stale" }[tone]}</span>)}</span>;
}

interface Hover { box: number; cable: number; x: number; y: number }
const NOWHERE: Hover = { box: -1, cable: -1, x: 0, y: 0 };
const PAN_PX = 60;

/** `still`: what is chosen is marked, and not moved to. */
export function MapCanvas({ layout, known, by, chosen, still }: { layout: Layout; known: Map<string, Known>; by: By; chosen: string; still?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View | null>(null);
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const frame = useRef(0);
  const shown = useRef<Frame | undefined>(undefined);
  const [size, setSize] = useState({ w: 900, h: 560 });
  const [hover, setHover] = useState<Hover>(NOWHERE);
  const theme = useTheme();
  const palette = useMemo(() => paletteOf(token), [theme]);
  const marked = layout.at.get(chosen) ?? -1;

  const paint = () => {
    frame.current = 0;
    const context = canvas.current?.getContext("2d", { alpha: false });
    if (!context || !view.current) return;
    const scene = { layout, known, by, chosen: hover.box >= 0 ? hover.box : marked, cable: hover.cable, palette };
    const next = frameOf(scene, view.current, devicePixelRatio, context.canvas.width, context.canvas.height);
    draw(context, next, shown.current, devicePixelRatio);
    shown.current = next;
    if (canvas.current) canvas.current.dataset["detail"] = detailAt(view.current.scale) satisfies Detail;
  };
  const repaint = () => {
    if (!frame.current) frame.current = requestAnimationFrame(paint);
  };
  useEffect(() => {
    if (!box.current) return;
    const sizes = new ResizeObserver(([entry]) => {
      if (!entry) return;
      const w = Math.max(300, entry.contentRect.width);
      setSize({ w, h: Math.max(340, Math.min(innerHeight - 190, w * 0.62, fit(layout, w, Infinity).scale * layout.h + 72)) });
    });
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, [layout.w, layout.h]);
  useEffect(() => {
    view.current = fit(layout, size.w, size.h);
  }, [layout.w, layout.h, size.w, size.h]);
  useEffect(() => {
    const found = layout.boxes[marked];
    if (!found || !view.current || still) return;
    const scale = Math.max(view.current.scale, 1);
    view.current = { scale, x: found.x + found.w / 2 - size.w / scale / 2, y: found.y + found.h / 2 - size.h / scale / 2 };
  }, [marked, layout, size.w]);
  useEffect(() => {
    repaint();
    return () => {
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  });
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    // Not passive: the wheel zooms the map, not the page.
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      if (!view.current) return;
      view.current = zoom(view.current, Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
      repaint();
    };
    const restored = () => {
      shown.current = undefined;
      repaint();
    };
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("contextrestored", restored);
    return () => {
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("contextrestored", restored);
    };
  });

  const pan = (dx: number, dy: number) => {
    if (!view.current) return;
    view.current = { ...view.current, x: view.current.x - dx / view.current.scale, y: view.current.y - dy / view.current.scale };
    repaint();
  };
  const locate = (event: PointerEvent): Hover => {
    if (!view.current) return NOWHERE;
    const [x, y] = [view.current.x + event.offsetX / view.current.scale, view.current.y + event.offsetY / view.current.scale];
    const found = boxAt(layout, x, y, detailAt(view.current.scale));
    const cable = found < 0 && layout.cables.length < 5_000 ? cableAt(layout, x, y, 5 / view.current.scale) : -1;
    return { box: found, cable, x: event.offsetX, y: event.offsetY };
  };
  const move = (event: PointerEvent) => {
    const held = drag.current;
    if (!held) {
      const found = locate(event);
      if (found.box !== hover.box || found.cable !== hover.cable) setHover(found);
      return;
    }
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    drag.current = { x: event.clientX, y: event.clientY, moved: true };
    pan(dx, dy);
  };
  const release = (event: PointerEvent) => {
    const held = drag.current;
    drag.current = null;
    if (held?.moved) return;
    const name = nameOf(layout, locate(event));
    if (name) location.hash = href(["fabric", name]);
  };
  const keys = (event: KeyboardEvent) => {
    const step = ({ ArrowUp: [0, PAN_PX], ArrowDown: [0, -PAN_PX], ArrowLeft: [PAN_PX, 0], ArrowRight: [-PAN_PX, 0] } as Record<string, [number, number]>)[event.key];
    const factor = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 }[event.key];
    if (step) pan(...step);
    else if (factor && view.current) view.current = zoom(view.current, factor, size.w / 2, size.h / 2);
    else if (event.key === "0") view.current = fit(layout, size.w, size.h);
    else return;
    event.preventDefault();
    repaint();
  };
  const name = nameOf(layout, hover);
  const state = name ? known.get(name) : undefined;
  return (
    <div class="canvas" ref={box}>
      <canvas ref={canvas} width={Math.round(size.w * devicePixelRatio)} height={Math.round(size.h * devicePixelRatio)} style={{ width: `${size.w}px`, height: `${size.h}px` }} tabIndex={0} role="application"
        aria-label="Map of the fabric. Arrow keys move, plus and minus zoom, 0 shows all. The list says the same in words."
        onPointerDown={(event) => { drag.current = { x: event.clientX, y: event.clientY, moved: false }; canvas.current?.setPointerCapture(event.pointerId); }}
        onPointerMove={move} onPointerUp={release} onPointerLeave={() => !drag.current && setHover(NOWHERE)} onKeyDown={keys} />
      {name && (
        <div class="tip" style={{ left: `${Math.min(hover.x + 14, size.w - 260)}px`, top: `${Math.min(hover.y + 14, size.h - 100)}px` }}>
          <strong class="mono">{name}</strong>
          {state?.why.slice(0, 4).map((why) => <div key={why}>{why}</div>)}
          {state?.load !== undefined && <div>load {percent(state.load)}</div>}
          {state?.loss !== undefined && <div>probes lost {percent(state.loss)}</div>}
          {!state && <div class="muted">nothing is known against it</div>}
        </div>
      )}
    </div>
  );
}

function nameOf(layout: Layout, hover: Hover): string {
  if (hover.box >= 0) return layout.boxes[hover.box]?.name ?? "";
  return layout.cableNames[hover.cable] ?? "";
}

const RANKED = ["bad", "warn", "unknown", "info", "", "ok"];

/** `bad`: those only of which something is said, or not known. */
function Devices({ title, layout, known, bad }: { title: string; layout: Layout; known: Map<string, Known>; bad?: boolean }) {
  const rank = (name: string) => RANKED.indexOf(known.get(name)?.tone ?? "");
  const rows = useMemo(() => {
    const cables = layout.cableNames.map((name) => ({ name, tier: "cable" }));
    const chosen = [...layout.boxes, ...cables].filter((each) => !bad || rank(each.name) <= RANKED.indexOf("unknown"));
    return chosen.sort((a, b) => rank(a.name) - rank(b.name) || byName(a.name, b.name));
  }, [layout, known, bad]);
  const words = { bad: "bad", warn: "warning", unknown: "unknown", info: "info", ok: "ok", "": "nothing known" };
  return (
    <Panel title={title} flush>
      <Table label="Devices and cables" rows={rows} key_={(each) => each.name} empty={<Empty what="Nothing is known against any device or cable." />} columns={[
        { title: "Name", cell: (each) => <Name to={href(["fabric", each.name])}>{each.name}</Name>, sort: (each) => each.name },
        { title: "Kind", cell: (each) => each.tier, sort: (each) => each.tier },
        { title: "State", cell: (each) => <Badge word="" tone={known.get(each.name)?.tone ?? ""}>{words[known.get(each.name)?.tone ?? ""]}</Badge>, sort: (each) => rank(each.name) },
        { title: "Why", cell: (each) => known.get(each.name)?.why.join("; ") },
        { title: "Load", num: true, cell: (each) => { const load = known.get(each.name)?.load; return load === undefined ? "" : percent(load); }, sort: (each) => known.get(each.name)?.load },
        { title: "Probes lost", num: true, cell: (each) => { const loss = known.get(each.name)?.loss; return loss === undefined ? "" : percent(loss); }, sort: (each) => known.get(each.name)?.loss },
      ]} />
    </Panel>
  );
}
