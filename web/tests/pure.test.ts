import { describe, expect, it } from "vitest";
import { nicRows, reachOf, sameOf, treeOf } from "../src/audit";
import { curveOf, stepOf } from "../src/delay/curve";
import { CLOCKS_NOT_KNOWN, colour, gapOf, half, isDark, LOST, lostOf, makeGrid, NOT_MEASURED, place, raster, scaleOf, valueAt, valuesOf, worst } from "../src/delay/matrix";
import { frameOf, type Scene, shiftOf, sizeOf, uncovered } from "../src/fabric/draw";
import { boxAt, cableAt, detailAt, fit, layoutOf, NIC, zoom } from "../src/fabric/layout";
import { cableName, concerns, knownOf, nicsIn, undirected } from "../src/fabric/state";
import { ago, count, digits, duration, instant, many, measured, percent, rate } from "../src/format";
import { byNics, causesIn, doneIn, doneOf, episodesOf, nicsOf } from "../src/episodes";
import { marksOf, rowsOf, ticksOf, within } from "../src/marks";
import type { Cell, FabricMap, Fleet, Incident, JobReport, Move, PathEvent, Port, Takeover } from "../src/messages";
import { choiceOf, href, instantOf, numberOf, parseRoute } from "../src/route";
import { placeOf } from "../src/views/place";

describe("a logarithmic axis", () => {
  it.each([[1e3, 1e6, [1e3, 1e4, 1e5, 1e6]], [8e3, 55e3, [1e4, 2e4, 5e4]], [4e3, 9.5e3, [4e3, 5e3, 6e3, 7e3, 8e3, 9e3]], [90, 110, [90, 100]]])("from %s to %s", (low, high, ticks) => expect(ticksOf(low, high)).toEqual(ticks));
});

describe("an axis of time", () => {
  it.each([
    ["all that was asked for", 90, 100, 60e9, [40, 100]], ["what is there, where that is more", 10, 100, 60e9, [10, 100]], ["what is there", 90, 100, undefined, [90, 100]],
    ["one instant", 100, 100, undefined, [70, 130]], ["one instant of a day", 86_400, 86_400, 86_400e9, [0, 86_400]], ["nothing", null, null, undefined, [-30, 30]],
  ] as const)("%s", (_, first, last, span, range) => expect(within(first, last, span)).toEqual(range));
});

describe("words", () => {
  it("says what was done to a path, and other actions as they come", () => expect([doneOf("destroy"), doneOf("fail over")]).toEqual(["path closed", "fail over"]));
  it("says once what is the same of several subjects", () => {
    const verdict = { branch: "Node", section: "", check: "node.kernel", status: "unknown", expected: "", got: "not readable", evidence: "", meaning: "", remedy: "", suspect: "" };
    const found = sameOf([{ ...verdict, subject: "h10" }, { ...verdict, subject: "h2" }, { ...verdict, subject: "h3", got: "other" }, { ...verdict, subject: "h4", status: "fail" }]);
    expect(found.map((each) => [each.status, each.got, each.subjects])).toEqual([["unknown", "not readable", ["h2", "h10"]], ["unknown", "other", ["h3"]], ["fail", "not readable", ["h4"]]]);
    const checks = sameOf([{ ...verdict, subject: "h1" }, { ...verdict, subject: "h1", check: "mem.mce" }, { ...verdict, subject: "h2" }, { ...verdict, subject: "h2", check: "mem.mce" }, { ...verdict, subject: "h2", check: "node.xid" }]);
    expect(checks.map((each) => [each.checks, each.subjects])).toEqual([[["node.kernel", "mem.mce"], ["h1", "h2"]], [["node.xid"], ["h2"]]]);
  });
});

describe("changes of paths are folded", () => {
  const event = (at_s: number, cause: string, action: string, more: Partial<PathEvent> = {}): PathEvent => ({ ts_ns: at_s * 1e9, host: "h0", job: "j", connection: "", cause, evidence: "", action, old_path: "h0/r0:1 > h1/r0:2", new_path: "", detect_ns: 0, act_ns: 0, result: "", ...more });
  const shape = (events: PathEvent[], alike = byNics) => episodesOf(events, alike).map((each) => [each.kind, each.events.map((one) => one.ts_ns / 1e9)]);
  it("keeps failovers apart from attempts to return", () => expect(shape([event(1, "fabric", "destroy"), event(2, "return", "request"), event(3, "join", "join-failed"), event(4, "peer", "destroy")])).toEqual([["failover", [4, 1]], ["return", [3, 2]]]));
  it("begins anew after three minutes of quiet", () => expect(shape([event(0, "peer", "destroy"), event(180, "peer", "destroy"), event(361, "peer", "destroy")])).toEqual([["failover", [361]], ["failover", [180, 0]]]));
  it("takes the source port of a path for the same path, and other NICs, hosts and jobs for others", () => {
    const again = (old_path: string, more = {}) => event(2, "peer", "destroy", { old_path, ...more });
    expect(shape([event(1, "peer", "destroy"), again("h0/r0:9 > h1/r0:8")])).toHaveLength(1);
    for (const other of [again("h0/r1:1 > h1/r0:2"), again("h0/r0:1 > h1/r0:2", { host: "h1" }), again("h0/r0:1 > h1/r0:2", { job: "k" })]) expect(shape([event(1, "peer", "destroy"), other])).toHaveLength(2);
    expect(shape([event(1, "peer", "destroy"), again("h0/r1:1 > h1/r0:2")], (each) => each.job)).toHaveLength(1);
  });
  it("has keys that stay while an episode grows", () => {
    const some = [event(1, "peer", "destroy"), event(500, "peer", "destroy")];
    const keys = (events: PathEvent[]) => episodesOf(events, byNics).map((each) => each.key);
    expect(new Set(keys(some)).size).toBe(2);
    expect(keys([...some, event(510, "peer", "destroy")])).toEqual(keys(some));
  });
  it("counts what was done, the most frequent first", () => {
    const [many] = episodesOf([event(1, "return", "request"), event(2, "join", "join-failed"), event(3, "return", "request")], byNics);
    const [one] = episodesOf([event(1, "fabric", "destroy")], byNics);
    expect([many, one].map((each) => each && [doneIn(each), causesIn(each)])).toEqual([["2 × path asked for, 1 × path not joined", "return, join"], ["path closed", "fabric"]]);
  });
  it.each([["h0/rail1:8621 > h3/rail1:65145", "h0/rail1 > h3/rail1"], ["h0/rail1:1>h3/rail1:2", "h0/rail1>h3/rail1"], ["", ""]])("leaves out ports of %s", (path, nics) => expect(nicsOf(path)).toBe(nics));
});

describe("a name is written whole or not at all", () => {
  it.each([
    ["room for all of it", 100, 4, 13], ["less room: smaller letters", 40, 4, 10], ["by half pixels", 34, 4, 8.5], ["the least", 30, 4, 7.5], ["too little", 29, 4, 0], ["none", -1, 4, 0],
  ])("%s", (_, room, width, size) => expect(sizeOf(room, width)).toBe(size));
});

describe("numbers have units and are never invented", () => {
  it.each([
    [0, "0 ns"], [94_000, "94 µs"], [1_500, "1.5 µs"], [999, "999 ns"], [2.5e6, "2.5 ms"], [1e9, "1 s"], [59e9, "59 s"], [119e9, "119 s"],
    [300e9, "5 min"], [7200e9, "2 h"], [259_200e9, "3 d"], [-94_000, "-94 µs"], [null, "unknown"], [undefined, "unknown"], [NaN, "unknown"], [Infinity, "unknown"],
  ])("duration %s", (ns, text) => expect(duration(ns)).toBe(text));
  it.each([[0, "0 b/s"], [999, "999 b/s"], [180e6, "180 Mb/s"], [4e11, "400 Gb/s"], [null, "unknown"]])("rate %s", (bps, text) => expect(rate(bps)).toBe(text));
  it.each([[0, "0 %"], [1, "100 %"], [0.31, "31 %"], [0.00001, "<0.01 %"], [null, "unknown"]])("percent %s", (ratio, text) => expect(percent(ratio)).toBe(text));
  it.each([[1234567, "1,234,567"], [0, "0"], [null, "unknown"]])("count %s", (value, text) => expect(count(value)).toBe(text));
  it.each([[100, "100"], [10, "10"], [1, "1"], [0.5, "0.5"], [12.34, "12.3"], [120.4, "120"], [1200.4, "1,200"]])("digits %s", (value, text) => expect(digits(value)).toBe(text));
  it("measures in the rule's unit", () => expect([measured(5e3, "ns"), measured(0.5, "ratio"), measured(90, "s"), measured(9, "")]).toEqual(["5 µs", "50 %", "90 s", "9"]));
  it("says never and ago", () => expect([instant(0), ago(0, 1), ago(1e18, 1e18 + 1e9), ago(1e18, 1e18 + 60e9), many(1, "host"), many(2, "host")]).toEqual(["never", "never", "just now", "60 s ago", "1 host", "2 hosts"]));
});

describe("addresses can be shared", () => {
  it.each(["h3/rail0", '<img src=x onerror="alert(1)">', "a b?c#d&e=%f", "leaf0->spine1", "ü/é"])("keeps %s", (name) => {
    expect(parseRoute(href(["fabric", name], { window: "1h", q: name }))).toEqual({ path: ["fabric", name], query: { window: "1h", q: name } });
  });
  it("survives a broken escape", () => expect(parseRoute("#/fabric/%E0%A4%A").path).toEqual(["fabric", "%E0%A4%A"]));
  it.each([["1764140000123456789", 1764140000123456800], ["12.7", 12], ["0", 0], ["-1", 0], ["1e300", 0], ["NaN", 0], ["Infinity", 0], ["x", 0], ["", 0], [undefined, 0]])("instant %s", (text, ns) => expect(instantOf(text)).toBe(ns));
  it.each([["7", 7], ["0", 0], ["-1", 5], ["1e99", 5], ["NaN", 5], ["x", 5], ["", 5], [undefined, 5]])("number %s", (text, value) => expect(numberOf(text, 5)).toBe(value));
  it("takes only what is offered", () => {
    const offered = [["a", "A"], ["b", "B"]] as const;
    expect([choiceOf("b", offered, "a"), choiceOf("constructor", offered, "a"), choiceOf("", offered, "a"), choiceOf(undefined, offered, "b")]).toEqual(["b", "a", "a", "b"]);
  });
  it("leaves out what is empty", () => expect(href(["delay"], { end: undefined, rail: "" })).toBe("#/delay"));
  it.each([["h5/rail1", "#/fabric/h5%2Frail1"], ["job train-7", "#/jobs/train-7"], ["h0/rail0<->h3/rail0", "#/delay/h0%2Frail0/h3%2Frail0"], ["h0/rail0->h3/rail0", "#/delay/h0%2Frail0/h3%2Frail0"], ["fleet", undefined], ["hosts at leaf0", undefined]])("place of %s", (subject, to) => expect(placeOf(subject)).toBe(to));
});

const cell = (src: string, dst: string, p50: number | null, lost = 0): Cell => ({ src, dst, paths: 1, sent: 100, lost, owd_min_ns: p50, owd_p50_ns: p50, owd_p99_ns: p50, clk_err_ns: 1, dropped: 0 });

describe("the delay matrix", () => {
  const grid = makeGrid([cell("h0/r0", "h1/r0", 100), cell("h1/r0", "h0/r0", 300), cell("h10/r0", "h0/r0", null, 100), cell("h0/r1", "h1/r1", 50)]);
  const at = (src: string, dst: string) => grid.names.indexOf(src) * grid.names.length + grid.names.indexOf(dst);
  it("orders by rail, then by host", () => expect(grid.names).toEqual(["h0/r0", "h1/r0", "h10/r0", "h0/r1", "h1/r1"]));
  it("filters by rail", () => expect(makeGrid([...grid.cells.filter((each) => each !== undefined)], "r1").names).toEqual(["h0/r1", "h1/r1"]));
  it("knows half of the round trip where both directions answered", () => {
    expect(valueAt(grid, at("h0/r0", "h1/r0"), "half")).toBe(200);
    expect(valueAt(grid, at("h0/r0", "h1/r0"), "skew")).toBe(-100);
    expect(valueAt(grid, at("h1/r0", "h0/r0"), "skew")).toBe(100);
    expect(half(cell("a", "b", 1), undefined)).toBeNull();
    expect(half(cell("a", "b", 1), cell("b", "a", null))).toBeNull();
  });
  it("tells what was not probed from what was lost", () => {
    expect(valueAt(grid, at("h0/r0", "h0/r0"), "p50")).toBeUndefined();
    expect(valueAt(grid, at("h10/r0", "h0/r0"), "p50")).toBeNull();
    expect(valueAt(grid, at("h10/r0", "h0/r0"), "loss")).toBe(1);
    expect(lostOf(grid)).toEqual({ lost: 1, probed: 4, nics: [["h10/r0", 1], ["h0/r0", 1]] });
  });
  it.each([
    [100, 0, 0, CLOCKS_NOT_KNOWN], [100, 30, 0, ["30 %", "lost, delay not known"]], [100, 0, 90, NOT_MEASURED], [100, 30, 90, NOT_MEASURED], [100, 51, 90, LOST], [0, 0, 0, NOT_MEASURED],
  ])("says why there is no delay: %i sent, %i lost, %i lost on the way back", (sent, lost, back, gap) => {
    expect(gapOf({ ...cell("h0/r0", "h1/r0", null, lost), sent }, cell("h1/r0", "h0/r0", null, back))).toEqual(gap);
  });
  it("shows no delay of a direction that is lost", () => {
    const dark = makeGrid([cell("h0/r0", "h1/r0", 100, 60), cell("h1/r0", "h0/r0", 100, 40)]);
    expect([1, 2].map((index) => valueAt(dark, index, "p50"))).toEqual([null, 100]);
    expect([1, 2].map((index) => valueAt(dark, index, "loss"))).toEqual([0.6, 0.4]);
    expect([...valuesOf(dark, "p50").all]).toEqual([NaN, -Infinity, 100, NaN]);
    expect(worst(valuesOf(dark, "skew"), 5)).toEqual([]);
  });
  it("takes the values of all cells, and the known ones in order", () => {
    for (const metric of ["p50", "p99", "min", "half", "skew", "loss"] as const) {
      const { all, known } = valuesOf(grid, metric);
      const one = Array.from(grid.cells, (_, index) => valueAt(grid, index, metric));
      expect([...all].map((value) => (value === -Infinity ? Infinity : value))).toEqual(one.map((value) => (value === undefined ? NaN : (value ?? Infinity))));
      expect([...known]).toEqual(one.filter((value): value is number => typeof value === "number").sort((a, b) => a - b));
    }
  });
  it("names those that differ most from half of the round trip, in both ways", () => expect(worst(valuesOf(grid, "skew"), 2).map((index) => valueAt(grid, index, "skew"))).toEqual([-100, 100]));
  it("names the worst that are known", () => expect(worst(valuesOf(grid, "p50"), 2)).toEqual([at("h1/r0", "h0/r0"), at("h0/r0", "h1/r0")]));
  it("draws each cell in its place", () => {
    const unmeasured = makeGrid([cell("h0/r0", "h1/r0", null)]);
    expect([...valuesOf(unmeasured, "p50").all]).toEqual([NaN, Infinity, NaN, NaN]);
    const { pixels } = raster(valuesOf(grid, "p50"), { none: [1, 2, 3], unknown: [7, 8, 9], lost: [4, 5, 6] });
    const pixel = (index: number) => [...pixels.slice(index * 4, index * 4 + 4)];
    expect(pixel(at("h0/r0", "h0/r0"))).toEqual([1, 2, 3, 255]);
    expect(pixel(at("h10/r0", "h0/r0"))).toEqual([4, 5, 6, 255]);
    expect(pixel(at("h1/r0", "h0/r0"))).toEqual([...colour(1, "p50"), 255]);
    expect(pixel(at("h0/r1", "h1/r1"))).toEqual([...colour(0, "p50"), 255]);
  });
  it("writes numbers on their colour with a contrast of at least 4.5", () => {
    const light = (red: number, green: number, blue: number) => [red, green, blue].map((each) => (each <= 10 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4)).reduce((sum, each, n) => sum + each * ([0.2126, 0.7152, 0.0722][n] ?? 0), 0);
    for (const metric of ["p50", "loss", "skew"] as const)
      for (let share = 0; share <= 1; share += 0.01) {
        const under = light(...colour(share, metric));
        const over = isDark(...colour(share, metric)) ? 1 : 0;
        expect((Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05)).toBeGreaterThanOrEqual(4.5);
      }
  });
  it("keeps values on the scale", () => {
    const scale = scaleOf(Float64Array.of(10, 100, 1000), "p50");
    expect([place(1, scale), place(10, scale), place(1e9, scale)]).toEqual([0, 0, 1]);
    expect(scaleOf(Float64Array.of(), "p50").high).toBeGreaterThan(0);
    expect(scaleOf(Float64Array.of(-5, 20), "skew")).toMatchObject({ low: -20, high: 20 });
  });
});

function fabric(hosts: number, rails: number, leaves: number, spines: number): FabricMap {
  const devices = Array.from({ length: spines }, (_, n) => ({ name: `spine${n}`, kind: "spine" }));
  const cables: [string, string][] = [];
  for (let rail = 0; rail < rails; rail++) {
    for (let leaf = 0; leaf < leaves; leaf++) {
      devices.push({ name: `leaf${rail}-${leaf}`, kind: "leaf" });
      for (let spine = 0; spine < spines; spine++) cables.push([`leaf${rail}-${leaf}`, `spine${spine}`]);
    }
    for (let host = 0; host < hosts; host++) {
      devices.push({ name: `h${host}/rail${rail}`, kind: "nic" });
      cables.push([`h${host}/rail${rail}`, `leaf${rail}-${Math.floor((host * leaves) / hosts)}`]);
    }
  }
  return { configured: true, devices, cables };
}

describe("the map of the fabric", () => {
  it.each([[8, 2, 2, 2], [64, 8, 4, 8], [1250, 8, 40, 32], [1, 1, 1, 1]])("places %i hosts, %i rails, %i leaves, %i spines without overlap", (hosts, rails, leaves, spines) => {
    const layout = layoutOf(fabric(hosts, rails, leaves, spines));
    expect(layout.boxes.length).toBe(hosts * rails + leaves * rails + spines);
    expect(layout.cables.length).toBe(leaves * rails * spines);
    const taken = new Set(layout.boxes.map((box) => `${box.x} ${box.y}`));
    expect(taken.size).toBe(layout.boxes.length);
    const outside = layout.boxes.filter((box) => box.x < 0 || box.x + box.w > layout.w + 0.001 || box.y < 0 || box.y + box.h > layout.h + 0.001);
    expect(outside).toEqual([]);
    const below = layout.boxes.filter((box) => box.tier === "nic").every((nic) => nic.y > (layout.boxes[nic.leaf]?.y ?? Infinity));
    expect(below).toBe(true);
  });
  it("keeps the shape of a screen at 10,000 NICs", () => {
    const { w, h } = layoutOf(fabric(1250, 8, 40, 32));
    expect(w / h).toBeGreaterThan(0.8);
    expect(w / h).toBeLessThan(4);
  });
  it("shows NICs whose place is not known", () => {
    const layout = layoutOf({ configured: false, devices: [], cables: [] }, ["h0/rail0", "h1/rail0"]);
    expect(layout.boxes.map((box) => box.name)).toEqual(["h0/rail0", "h1/rail0"]);
    expect(layout.groups.at(-1)?.label).toBe("place not learnt yet");
  });
  it("finds what is under the pointer at each level of detail", () => {
    const layout = layoutOf(fabric(8, 2, 2, 2));
    const nic = layout.boxes[layout.at.get("h5/rail1") ?? -1]!;
    const [x, y] = [nic.x + 1, nic.y + 1];
    expect(layout.boxes[boxAt(layout, x, y, "names")]?.name).toBe("h5/rail1");
    expect(boxAt(layout, x, y, "leaves")).toBe(-1);
    expect(boxAt(layout, -50, -50, "names")).toBe(-1);
    const [leaf, spine] = [layout.boxes[layout.at.get("leaf0-0") ?? -1]!, layout.boxes[layout.at.get("spine1") ?? -1]!];
    const middle = [(leaf.x + leaf.w / 2 + spine.x + spine.w / 2) / 2, (spine.y + spine.h + leaf.y) / 2] as const;
    const found = layout.cables[cableAt(layout, ...middle, 3)];
    expect(found?.map((n) => layout.boxes[n]?.name).sort()).toEqual(["leaf0-0", "spine1"]);
    expect(cableAt(layout, -500, -500, 3)).toBe(-1);
  });
  it("draws less the further away", () => expect([0.01, 0.3, 1].map(detailAt)).toEqual(["leaves", "nics", "names"]));
  it("zooms about the pointer, and shows all", () => {
    const layout = layoutOf(fabric(8, 2, 2, 2));
    const whole = fit(layout, 1000, 600);
    expect((layout.w - whole.x) * whole.scale).toBeLessThanOrEqual(1000);
    const nearer = zoom(whole, 2, 300, 200);
    expect(nearer.x + 300 / nearer.scale).toBeCloseTo(whole.x + 300 / whole.scale);
    expect(nearer.y + 200 / nearer.scale).toBeCloseTo(whole.y + 200 / whole.scale);
    expect(NIC.w * zoom(whole, 1e9, 0, 0).scale).toBeLessThan(1000);
  });
});

const port = (nic: string, fields: Partial<Port> = {}): Port => ({ nic, netdev: "", rdma: "", link_layer: "", driver: "", role: "compute", state: "active", gbps: 400, flaps: 0, last_flap_ns: null, seen_ns: 100e9, watched_ns: 0, temperature_c: null, rx_dbm: null, bias_ma: null, ...fields });
const nothing = { nowNs: 100e9, ports: [], fleet: undefined, findings: [], queues: [], incidents: [], loads: [], matrix: undefined };

describe("what is known of a device", () => {
  it("is unknown, not up, when it was not looked at lately", () => {
    const known = knownOf({ ...nothing, nowNs: 300e9, ports: [port("h0/rail0"), port("h1/rail0", { seen_ns: 299e9, state: "no-peer" })] });
    expect([known.get("h0/rail0")?.tone, known.get("h1/rail0")?.tone]).toEqual(["unknown", "bad"]);
  });
  it("is the worst of what is said, for every suspect", () => {
    const incident = { subject: "leaf0->spine1 or h0/rail0", severity: "critical", state: "open", cause: 0, summary: "loses" } as Incident;
    const known = knownOf({ ...nothing, ports: [port("h0/rail0")], incidents: [incident, { ...incident, subject: "h2/rail0", state: "resolved" }] });
    expect([known.get("h0/rail0")?.tone, known.get("leaf0--spine1")?.tone, known.get("h2/rail0")]).toEqual(["bad", "bad", undefined]);
  });
  it("takes the fuller direction as load", () => {
    const load = (link: string, bps: number) => ({ link, bps, capacity_bps: 100, flows: 1, queue_ns: null, paced_bps: 0 });
    expect(knownOf({ ...nothing, loads: [load("a->b", 40), load("b->a", 90)] }).get("a--b")?.load).toBe(0.9);
  });
  it.each([["h5/rail1", "h5", true], ["h5/rail1", "h5/rail1", true], ["h50/rail1", "h5", false], ["a->b", "a--b", true], ["h4/r<->h5/r", "h5/r", true]])("%s concerns %s: %s", (subject, name, yes) => expect(concerns(subject, name)).toBe(yes));
  it("knows the NICs that an incident is about", () => expect(["h3/r1", "h3/r1 or h3/r1--leaf0", "h2/r1<->h3/r1", "h2/r1->h3/r1", "leaf0--spine1", "h3", "job a/b or c"].map(nicsIn)).toEqual([["h3/r1"], ["h3/r1", "h3/r1"], ["h2/r1", "h3/r1"], ["h2/r1", "h3/r1"], [], [], []]));
  it("knows a cable by either direction", () => expect([undirected("b->a"), cableName("b", "a"), undirected("a<->b")]).toEqual(["a--b", "a--b", "a<->b"]));
});

describe("the audit", () => {
  const fleet = { agents: [{ host: "h0", connected: true, nics: [{ name: "rail0", rdma: "" }, { name: "rail1", rdma: "roce" }] }, { host: "h1", connected: false, nics: [{ name: "rail0", rdma: "" }] }] } as unknown as Fleet;
  it("sums sections by branch", () => expect(treeOf([{ branch: "A", section: "x", counts: { fail: 1, pass: 2 }, why: "" }, { branch: "A", section: "y", counts: { fail: 2 }, why: "" }, { branch: "B", section: "", counts: { skip: 1 }, why: "" }]).map((each) => [each.name, each.counts])).toEqual([["A", { fail: 3, pass: 2 }], ["B", { skip: 1 }]]));
  it("says pass only with evidence", () => {
    const rows = nicRows([], fleet, [], 0, undefined);
    expect(rows.find((row) => row.host === "h0")?.initialized.status).toBe("");
    expect(rows.find((row) => row.host === "h1")?.initialized.status).toBe("unknown");
    expect(rows.some((row) => row.status === "pass")).toBe(false);
  });
  it("does not pass a NIC of which no probe was reported", () => {
    const rows = nicRows([], fleet, [port("h0/rail0", {}), port("h0/rail1", {})], 100e9, { cells: [cell("h0/rail1", "h1/rail1", 5)] });
    expect(rows.map((row) => [row.host, row.nic, row.status, row.connectivity.text])).toEqual([["h0", "rail0", "unknown", "no probe reported"], ["h1", "rail0", "unknown", undefined], ["h0", "rail1", "pass", "1 of 1 peers"]]);
  });
  it("takes the audit's word before the agent's", () => {
    const audit = { host: "h0", nic: "mlx5_1:1", initialized: "pass", active: "fail", gid: "pass", connectivity: "", gid_index: "3" };
    const rows = nicRows([audit], fleet, [port("h0/rail1", { rdma: "mlx5_1" })], 100e9, { cells: [cell("h0/rail1", "h1/rail1", 5)] });
    const row = rows.find((each) => each.nic === "mlx5_1:1");
    expect([row?.status, row?.active.status, row?.gid.text, row?.connectivity.status]).toEqual(["fail", "fail", "3", "pass"]);
    expect(rows.filter((each) => each.host === "h0").length).toBe(2);
  });
  it("holds a dead NIC against itself alone", () => {
    const names = ["a", "b", "c", "d"];
    const cells = names.flatMap((src) => names.filter((dst) => dst !== src).map((dst) => cell(src, dst, src === "d" || dst === "d" ? null : 5)));
    const reach = reachOf({ cells });
    expect(names.map((name) => reach.get(name)?.status)).toEqual(["pass", "pass", "pass", "fail"]);
    expect(reach.get("d")?.text).toBe("0 of 3 peers");
  });
});

describe("what happened to a job is marked on its charts", () => {
  const takeover = (at: number, more: Partial<Takeover> = {}): Takeover => ({ ts_ns: at, what: "replaced", rank: 3, at: "h1", step: 41, generation: 1, reason: "killed", worker: "w9", stall_ns: 10e9, ...more });
  const report = (takeovers: Takeover[], verdicts: object[] = []) => ({ begin_ns: 0, end_ns: 120e9, verdicts, takeovers }) as unknown as JobReport;
  const labels = (...given: Parameters<typeof marksOf>) => marksOf(...given).map((each) => [each.at_ns / 1e9, each.label, each.tone]);
  it("marks a loss and what came of it", () => expect(labels(report([takeover(60e9)]), [], [], [])).toEqual([[50, "rank 3 lost: killed", "bad"], [60, "replaced after 10 s", "ok"]]));
  it("counts ranks that were lost together", () => expect(labels(report([takeover(60e9), takeover(60e9, { rank: 4 })]), [], [], [])[0]).toEqual([50, "2 ranks lost: killed", "bad"]));
  it("keeps takeovers of other generations apart", () => expect(labels(report([takeover(60e9), takeover(100e9, { generation: 2 })]), [], [], [])).toHaveLength(4));
  it("says what was not replaced", () => expect(labels(report([takeover(60e9, { what: "ended", rank: -1 }), takeover(70e9, { what: "verified" })]), [], [], [])).toEqual([[60, "job ended", "bad"]]));
  it("marks faults, incidents, failovers and moves", () => {
    const found = labels(report([], [{ onset_ns: 10e9, class: "slow-flow" }]), [{ ts_ns: 30e9, action: "reroute" } as PathEvent], [{ ts_ns: 40e9, result: "helped" } as Move], [{ opened_ns: 20e9, rule: "path-loss" } as Incident]);
    expect(found).toEqual([[10, "slow-flow", "bad"], [20, "path-loss", "bad"], [30, "reroute", "warn"], [40, "move: helped", "info"]]);
  });
  it("marks paths that were left, and attempts to return not at all", () => {
    const path = (at_s: number, cause: string, action = "destroy") => ({ ts_ns: at_s * 1e9, action, cause, job: "j" }) as PathEvent;
    const some = [path(30, "fabric"), path(32, "peer"), path(60, "return"), path(61, "join", "join-failed"), path(62, "fabric", "request"), path(63, "degraded", "whole"), path(90, "peer")];
    expect(labels(report([]), some, [], [])).toEqual([[30, "path closed", "warn"], [90, "path closed", "warn"]]);
  });
  it("leaves out what is outside the window", () => expect(labels(report([takeover(125e9, { stall_ns: 1e9 }), takeover(5e9)]), [], [], [])).toEqual([[5, "replaced after 10 s", "ok"]]));
  it("writes no label over another", () => expect([rowsOf([0, 50, 60, 100, 300], [100, 20, 100, 10, 10]), rowsOf([], [])]).toEqual([[0, 1, 2, 0, 0], []]));
  it("puts together what is too near, the worst first", () => {
    const near = labels(report([takeover(60e9, { stall_ns: 0.5e9 })]), [{ ts_ns: 59e9, action: "reroute" } as PathEvent, { ts_ns: 60.5e9, action: "reroute" } as PathEvent], [], []);
    expect(near).toEqual([[59.5, "rank 3 lost: killed (+2)", "bad"]]);
  });
});

describe("a map that is moved", () => {
  const scene = { layout: layoutOf(fabric(8, 2, 2, 2)), known: new Map(), by: "state", chosen: -1, cable: -1, palette: {} } as unknown as Scene;
  const frame = (x: number, y: number, scale = 1.3) => frameOf(scene, { x, y, scale }, 1.5, 900, 500);

  it("is the last picture moved by whole pixels, and what that leaves free", () => {
    let seed = 7;
    const random = (most: number) => (seed = (seed * 48271) % 2147483647) % most;
    for (let n = 0; n < 300; n++) {
      const [w, h] = [1 + random(40), 1 + random(30)];
      const shift = { dx: random(2 * w + 20) - w - 10, dy: random(2 * h + 20) - h - 10 };
      const times = new Uint8Array(w * h);
      for (const area of uncovered(shift, w, h))
        for (let y = area.y; y < area.y + area.h; y++) for (let x = area.x; x < area.x + area.w; x++) times[y * w + x]! += 1;
      const wrong = times.findIndex((found, at) => {
        const [x, y] = [(at % w) - shift.dx, Math.floor(at / w) - shift.dy];
        return found !== (x >= 0 && x < w && y >= 0 && y < h ? 0 : 1);
      });
      expect([n, w, h, shift, wrong]).toEqual([n, w, h, shift, -1]);
    }
  });

  it("is another picture when anything but the place differs", () => {
    expect(shiftOf(frame(0, 0), frame(10, -20))).toEqual({ dx: -Math.round(10 * 1.3 * 1.5), dy: Math.round(20 * 1.3 * 1.5) });
    expect(shiftOf(frame(0, 0), frame(0, 0, 1.4))).toBeUndefined();
    expect(shiftOf(frame(0, 0), { ...frame(0, 0), w: 901 })).toBeUndefined();
    expect(shiftOf(frame(0, 0), { ...frame(0, 0), h: 501 })).toBeUndefined();
    for (const name of Object.keys(scene)) expect([name, shiftOf(frame(0, 0), { ...frame(5, 5), scene: { ...scene, [name]: "other" } })]).toEqual([name, undefined]);
  });
});

describe("a NIC's delay curve", () => {
  const point = (ts_ns: number, dst: string, owd_p50_ns: number | null, sent = 10, lost = 0) =>
    ({ ts_ns, src: "h0/r", dst, sent, lost, owd_min_ns: null, owd_p50_ns, owd_p99_ns: null });
  it("has the usual peer and the slowest at each instant, in order", () => {
    const points = [point(120, "a", 5), point(60, "a", 1), point(60, "b", 9), point(60, "c", 4), point(120, "b", 7, 10, 5)];
    expect(curveOf(points)).toEqual({ times: [60, 120], usual: [4, 6], slowest: [9, 7], lost: [0, 0.25] });
  });
  it("has gaps where nothing arrived, and where nothing was sent", () => {
    const points = [point(60, "a", null, 10, 10), point(120, "a", null, 0)];
    expect(curveOf(points)).toEqual({ times: [60, 120], usual: [null, null], slowest: [null, null], lost: [1, null] });
    expect(curveOf(points, [120, 180]).lost).toEqual([null, null]);
    expect(curveOf([]).times).toEqual([]);
  });
  it("has some 150 points of whole minutes", () => {
    expect([3600e9, 86_400e9, 604_800e9].map((length) => stepOf(length) / 60e9)).toEqual([1, 10, 68]);
  });
});
