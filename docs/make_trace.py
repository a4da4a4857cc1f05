"""The trace in docs/data: eight ranks of PyTorch (gloo) in a lab, one flow of them slow half-way.

    python docs/make_trace.py [picture]

Takes two minutes; needs an interpreter with PyTorch (docs/how-to/drill.md). With `picture` the
trace that is there is drawn again.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from syntony.lab.drill import modes
from syntony.lab.drill.flows import SS_ARGV, parse_ss
from syntony.lab.drill.place import job_spec, lab_for
from syntony.lab.jobs.runner import LabJob
from syntony.lab.jobs.torch_build import find_torch
from syntony.lab.plan import FabricSpec
from syntony.model import MS
from syntony.view.drill_charts import render_figure

IMAGES = Path(__file__).parent / "images"
DATA = Path(__file__).parent / "data"
NAME = "eight-ranks.trace.json.gz"
RANKS, ELEMENTS, PAUSE_NS = 8, 65_536, 150 * MS
QUIET_S, SLOW_S, SETTLE_S = 25.0, 20.0, 10.0
PATIENCE_S = 300.0


def picture() -> None:
    """Five seconds around the verdict: collectives of all ranks, and the flows' delays."""
    made = msgspec.json.decode(gzip.decompress((DATA / NAME).read_bytes()))
    events = made["traceEvents"]
    hosts = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    (verdict,) = (e for e in events if e["ph"] == "i")
    begin_s = verdict["ts"] / 1e6 - 2.5

    def draw(figure: Any) -> None:
        above = figure.add_axes((0.09, 0.42, 0.88, 0.46))
        below = figure.add_axes((0.09, 0.1, 0.88, 0.25), sharex=above)
        for category, height, colour in (("step", 0.8, "#dfe4ea"), ("collective", 0.4, "#00798c")):
            for e in events:
                if e.get("cat") == category and e["ts"] / 1e6 + 5 > begin_s > e["ts"] / 1e6 - 5:
                    row = int(hosts[e["pid"]].removeprefix("host h"))
                    above.barh(row, e["dur"] / 1e6, height, e["ts"] / 1e6, color=colour,
                               edgecolor="white", linewidth=0.4)  # fmt: skip
        flows: dict[str, list[tuple[float, float]]] = {}
        for e in events:
            if e.get("cat") == "flow":
                flows.setdefault(e["name"], []).append((e["ts"] / 1e6, e["args"]["delay_us"] / 1e3))
        subject = verdict["name"].removeprefix("slow-flow: ")
        for name, points in flows.items():
            slow = name.startswith(subject)
            below.plot(*zip(*sorted(points), strict=True), color="#d1495b" if slow else "#8d99ae",
                       lw=2 if slow else 1)  # fmt: skip
        above.set_xlim(begin_s, begin_s + 5)
        above.invert_yaxis()
        above.set_ylabel("rank")
        below.set_yscale("log")
        below.set_ylabel("delay, ms")
        below.set_xlabel("seconds since the recording began")
        for axes in (above, below):
            axes.axvline(verdict["ts"] / 1e6, color="#22303c", lw=0.8, ls=(0, (4, 3)))
            axes.spines[["top", "right"]].set_visible(False)
        figure.text(0.09, 0.94, verdict["name"], fontsize=12, fontweight="bold", color="#22303c")

    (IMAGES / "eight-ranks.png").write_bytes(render_figure((10.0, 5.6), draw, "png"))


def main() -> None:
    if sys.argv[1:] != ["picture"]:
        record()
    picture()


def record() -> None:
    """Run the job in a lab of its own, and keep its trace."""
    syntony = (sys.executable, "-m", "syntony")
    spec = FabricSpec(hosts=RANKS, rails=1)
    with lab_for(modes.SYNTONY_TCP, spec) as lab, tempfile.TemporaryDirectory() as place:
        made = job_spec(lab, framework="gloo", kind="ddp", python=find_torch(), ranks=RANKS)
        made = msgspec.structs.replace(made, elements=ELEMENTS, pause_ns=PAUSE_NS)
        with LabJob(lab, made, wrap=modes.SYNTONY_TCP.wrap) as job:
            job.wait_steps(20, PATIENCE_S)
            time.sleep(QUIET_S)
            flows = [
                each for each in parse_ss(lab.run("h2", *SS_ARGV)) if each.peer in made.addresses
            ]
            busiest = max(flows, key=lambda each: each.sent_bytes)
            ports = {"sport": str(busiest.local_port), "dport": str(busiest.peer_port)}
            lab.inject("flow-rate", "h2/rail0", {"to": "2mbit", **ports})
            time.sleep(SLOW_S)
            lab.clear()
            time.sleep(SETTLE_S)
            bundle = Path(place) / "bundle"
            words = (
                "record",
                modes.JOB,
                "--lab",
                lab.name,
                "--window",
                "50s",
                "--out",
                str(bundle),
            )
            subprocess.run((*syntony, *words), check=True)
        trace = Path(place) / "trace.json"
        subprocess.run((*syntony, "timeline", str(bundle), "--out", str(trace)), check=True)
        (DATA / NAME).write_bytes(gzip.compress(trace.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
