"""Write the index of decision records: python docs/decisions/make_index.py

One line for each record, its title, under the first theme whose words its title or file name has.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
INDEX = HERE / "README.md"
THEMES = {
    "RDMA, verbs and NCCL": "queue-pair verbs nccl plug-in rdma",
    "Clocks and fleet time": "clock utc timeline fleet-time estimat floor purity huber sigma bound "
    "slew window envelope stamp epoch anchor drift served synchron",
    "Failover and paths of jobs": "path failover flow subflow join rail plain-tcp silence silent "
    "reactor interposer hung standby mptcp port nic detour",
    "Fabric, loss and blame": "fabric switch cable loss blame tomograph trace twin link hop "
    "topolog candidate suspicious queue",
    "Incidents and pages": "incident page told cause symptom severity alert metrics latency",
    "Jobs: why they are slow": "job torch rank diagnos step bundle gpu contention pair-of runs",
    "Placement and pacing": "move paced pacing placement optimum chain trial colour",
    "Audit": "audit check survey cabling reading ssh fixture fact case role",
    "Control plane, security and store": "state controller agent token certificate ca authoris "
    "key spool ack batch message version sqlite lease transaction row store clickhouse sort memory "
    "plan",
    "Lab and simulators": "lab sim fluid world machine host drill",
    "Build, tests and packages": "test build wheel package depend site mutat model slurm deploy "
    "make bindings demo",
}
_SUPERSEDED = re.compile(r"[Ss]uperseded(?: in part)? by \[?(\d{4})")


def theme_of(words: str) -> str:
    """The first theme with a word that begins one of `words`."""
    for theme, stems in THEMES.items():
        if any(re.search(rf"(?<![a-z]){stem}", words) for stem in stems.split()):
            return theme
    return "Everything else"


def index() -> str:
    """The page."""
    listed: dict[str, list[str]] = {theme: [] for theme in [*THEMES, "Everything else"]}
    for path in sorted(HERE.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        title = re.sub(r"^# *\d{4} *[:·.–-]* *", "", text.partition("\n")[0]).strip()
        later = _SUPERSEDED.search(text)
        note = f" (superseded by {later[1]})" if later else ""
        where = theme_of(f"{path.stem} {title}".lower())
        listed[where].append(f"* [{path.stem[:4]}]({path.name}) {title}{note}")
    parts = ["# Decisions, by theme", "Made by `python docs/decisions/make_index.py`."]
    parts += [f"## {theme}\n\n" + "\n".join(lines) for theme, lines in listed.items() if lines]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
