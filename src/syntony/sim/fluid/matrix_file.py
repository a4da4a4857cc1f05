"""Connection-matrix files, as the packet-level simulator htsim reads them. Pure: text in and out.

``Nodes N``, ``Connections C``, ``Triggers T``, then lines such as ``0->5 id 1 start 0 size 2000000
send_done_trigger 3``, ``5->9 id 2 trigger 3 size 2000000`` and ``trigger id 3 oneshot``. Starts are
picoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from syntony.errors import InputError
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.traffic import NEVER, SimulatedTraffic, Trigger, TriggerKind

MAX_FLOWS = 10_000_000
HEADER = ("Nodes", "Connections", "Triggers", "Failures")


def parse_matrix(text: str) -> SimulatedTraffic:
    """Traffic of a file; not yet checked against a fabric. Jobs are what triggers or hosts join.
    Raises `InputError`: a line that cannot be understood, or counts that do not agree."""
    parser = _Parser()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            parser.take(words, number)
    return parser.finish()


def format_matrix(traffic: SimulatedTraffic, nics: int) -> str:
    """A file that `parse_matrix`, and htsim, read back."""
    lines = [f"Nodes {nics}", f"Connections {traffic.flows}", f"Triggers {len(traffic.triggers)}"]
    for flow in range(traffic.flows):
        waits, fires = int(traffic.waits[flow]), int(traffic.fires[flow])
        received = int(traffic.fires_received[flow])
        start = f"start {round(traffic.start_ns[flow] * 1000)}"
        words = [
            f"{traffic.src[flow]}->{traffic.dst[flow]} id {flow + 1}",
            start if waits == NEVER else f"trigger {waits}",
            f"size {round(traffic.size[flow])}",
        ]
        if fires != NEVER:
            words.append(f"send_done_trigger {fires}")
        if received != NEVER:
            words.append(f"recv_done_trigger {received}")
        lines.append(" ".join(words))
    for number, trigger in traffic.triggers.items():
        count = f" count {trigger.count}" if trigger.kind is TriggerKind.BARRIER else ""
        lines.append(f"trigger id {number}{count} {trigger.kind}")
    return "\n".join(lines) + "\n"


class _Parser:
    def __init__(self) -> None:
        self._reported: dict[str, int] = {}
        self._rows: list[tuple[int, int, float, float, int, int, int]] = []
        self._ids: list[str] = []
        self._triggers: dict[int, Trigger] = {}

    def take(self, words: list[str], number: int) -> None:
        """One line that is not empty."""
        head = words[0]
        if head in HEADER:
            self._reported[head] = _whole(words[1:2], number, head)
        elif head == "trigger":
            self._trigger(words[1:], number)
        elif "->" in head:
            self._flow(words, number)
        else:
            raise InputError("bad-line", f"line {number}: {head[:40]!r} begins nothing known")
        if self._reported.get("Failures"):
            raise InputError("failures", "broken links are given by --dead, not by the traffic")

    def finish(self) -> SimulatedTraffic:
        for what, found in (("Connections", self._rows), ("Triggers", self._triggers)):
            if what in self._reported and self._reported[what] != len(found):
                raise InputError(
                    "bad-count",
                    f"{what} says {self._reported[what]}, and the file has {len(found)}",
                )
        if len(set(self._ids)) != len(self._ids):
            twice = next(k for k in self._ids if self._ids.count(k) > 1)
            raise InputError("duplicate-id", f"two flows have the id {twice}")
        nodes = self._reported.get("Nodes")
        for src, dst, *_ in self._rows:
            if nodes is not None and max(src, dst) >= nodes:
                raise InputError("unknown-host", f"flow {src}->{dst}: the file says Nodes {nodes}")
        columns = [np.array(column) for column in zip(*self._rows, strict=True)] or [
            np.zeros(0)
        ] * 7
        whole = [column.astype(np.int64) for column in columns]
        return SimulatedTraffic(
            src=whole[0],
            dst=whole[1],
            size=columns[2].astype(np.float64),
            job=_jobs(whole[0], whole[1]),
            start_ns=columns[3].astype(np.float64),
            waits=whole[4],
            fires=whole[5],
            fires_received=whole[6],
            triggers=self._triggers,
            names=self._ids,
        )

    def _flow(self, words: list[str], number: int) -> None:
        a, _, b = words[0].partition("->")
        src, dst = _whole([a], number, "src"), _whole([b], number, "dst")
        found = dict(_pairs(words[1:], number, FLOW_WORDS))
        start = found.get("start")
        if (start is None) == ("trigger" not in found):
            raise InputError("bad-line", f"line {number}: needs either start or trigger")
        if "size" not in found:
            raise InputError("bad-line", f"line {number}: no size")
        self._ids.append(found.get("id", f"{len(self._ids) + 1}"))
        size = _real(found["size"], number, "size")
        start_ns = 0.0 if start is None else _real(start, number, "start") / 1000
        waits, fires, received = (_trigger_of(found, word, number) for word in TRIGGER_WORDS)
        self._rows.append((src, dst, size, start_ns, waits, fires, received))
        if len(self._rows) > MAX_FLOWS:
            raise InputError("too-large", f"more than {MAX_FLOWS} flows")

    def _trigger(self, words: list[str], number: int) -> None:
        kinds = [word for word in words if word in set(TriggerKind)]
        rest = [word for word in words if word not in kinds]
        found = dict(_pairs(rest, number, ("id", "count")))
        if len(kinds) != 1 or "id" not in found:
            raise InputError("bad-line", f"line {number}: a trigger has an id and one kind")
        count = _whole([found["count"]], number, "count") if "count" in found else 1
        if count < 1:
            raise InputError("bad-line", f"line {number}: a barrier of {count}")
        self._triggers[_whole([found["id"]], number, "id")] = Trigger(TriggerKind(kinds[0]), count)


FLOW_WORDS = ("id", "start", "trigger", "size", "send_done_trigger", "recv_done_trigger", "prio")
TRIGGER_WORDS = ("trigger", "send_done_trigger", "recv_done_trigger")


def _pairs(words: list[str], number: int, known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place in range(0, len(words), 2):
        if words[place] not in known:
            raise InputError("bad-line", f"line {number}: {words[place][:40]!r} is not known")
        if place + 1 == len(words):
            raise InputError("bad-line", f"line {number}: {words[place]} of what?")
        yield words[place], words[place + 1]


def _trigger_of(found: dict[str, str], word: str, number: int) -> int:
    return _whole([found[word]], number, word) if word in found else NEVER


def _whole(words: list[str], number: int, what: str) -> int:
    return int(_read(words[0] if words else "", number, what, int))


def _real(word: str, number: int, what: str) -> float:
    return float(_read(word, number, what, float))


def _read(word: str, number: int, what: str, kind: Callable[[str], float]) -> float:
    try:
        value = kind(word)
    except ValueError:
        raise InputError("bad-line", f"line {number}: {what} is {word[:40]!r}") from None
    if not 0 <= value < 2**53:
        raise InputError("bad-line", f"line {number}: {what} is {word[:40]}")
    return value


def _jobs(src: Numbers, dst: Numbers) -> Numbers:
    """Hosts that exchange anything, by whatever way, are of one job."""
    hosts, ends = np.unique(np.concatenate((src, dst)), return_inverse=True)
    a, b = np.split(ends, 2)
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(hosts), len(hosts)))
    return connected_components(graph, directed=False)[1][a].astype(np.int64)
