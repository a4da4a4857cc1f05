"""How fast GPUs copy: `nvbandwidth` and `rocm-bandwidth-test -a`.

Both print matrices: nvbandwidth (v0.2 to v0.10) one for each test case, after ``Running NAME.`` and
before ``SUM NAME``; AMD's one for all devices, the processors among them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.audit.facts import UnreadableError

H2D, D2H, P2P = "host to GPU", "GPU to host", "GPU to GPU"
CASES = {
    "host_to_device_memcpy_ce": H2D,
    "device_to_host_memcpy_ce": D2H,
    "device_to_device_memcpy_read_ce": P2P,
}
"""nvbandwidth's test cases that are asked for: copies by the copy engines, one way at a time."""
_CELL = r"(?:N/A|\d{1,9}(?:\.\d{1,9})?)"
_ROW = re.compile(rf"\s*(\d{{1,3}})((?:\s+{_CELL})*)\s*")
_RUNNING = re.compile(r"\s*Running (\w{1,80})\.")
_SUM = re.compile(r"\s*SUM (\w{1,80})\s")
_DEVICE = re.compile(r"\s*Device:\s*(\d{1,3}),\s*(.{1,120}?)\s*$")
_BUS = re.compile(r",\s*([0-9a-f]{1,4}:[0-9a-f]{1,2}\.[0-7])$", re.IGNORECASE)


class CopyRate(NamedTuple):
    """The rate of one GPU in one direction; between GPUs its slowest."""

    direction: str
    gpu: int
    gbytes: float
    """GB/s."""


_Matrix = list[list[float | None]]


def parse_nvbandwidth(text: str) -> tuple[CopyRate, ...]:
    """Every GPU in every direction that was measured; a single GPU has no other to copy to. Raises
    `UnreadableError`: no matrix, or one that is cut off."""
    found: list[CopyRate] = []
    case = ""
    lines: list[str] = []
    for line in text.splitlines():
        if match := _RUNNING.match(line):
            _closed(case)
            case, lines = match[1], []
        elif "Waived" in line or "WAIVED" in line:
            case = ""
        elif (match := _SUM.match(line)) and match[1] == case:
            if case in CASES:
                found += _transfers(CASES[case], _matrix(lines, case))
            case = ""
        elif case:
            lines.append(line)
    _closed(case)
    if not found:
        raise UnreadableError("`nvbandwidth` printed no bandwidth")
    return tuple(found)


def _closed(case: str) -> None:
    if case:
        raise UnreadableError(f"`nvbandwidth` ends within {case}")


def _matrix(lines: list[str], what: str) -> _Matrix:
    """Rows below a head of 0, 1, 2…; every row as wide as the head."""
    cells = [line.split() for line in lines]
    heads = [at for at, row in enumerate(cells) if row and row == list(map(str, range(len(row))))]
    if not heads:
        raise UnreadableError(f"`nvbandwidth` printed no matrix of {what}")
    width = len(cells[heads[0]])
    rows = [match for line in lines[heads[0] + 1 :] if (match := _ROW.fullmatch(line))]
    matrix = [[_rate(cell) for cell in match[2].split()] for match in rows]
    if not matrix or any(len(row) != width for row in matrix):
        raise UnreadableError(f"`nvbandwidth` printed half a matrix of {what}")
    return matrix


def _rate(cell: str) -> float | None:
    return None if cell == "N/A" else float(cell)


def _transfers(direction: str, matrix: _Matrix) -> list[CopyRate]:
    width = len(matrix[0])
    if direction == P2P:
        if len(matrix) != width:
            raise UnreadableError(f"{len(matrix)} rows for {width} GPUs: the matrix is cut off")
        per_gpu = [[rate for rate in row if rate is not None] for row in matrix]
        return [CopyRate(direction, gpu, min(rates)) for gpu, rates in enumerate(per_gpu) if rates]
    columns = [[row[gpu] for row in matrix] for gpu in range(width)]
    # Several rows are several memories: the nearest counts.
    best = [max((rate for rate in column if rate is not None), default=None) for column in columns]
    return [CopyRate(direction, gpu, rate) for gpu, rate in enumerate(best) if rate is not None]


def parse_rocm_bandwidth(text: str) -> tuple[CopyRate, ...]:
    """`rocm-bandwidth-test -a`, GPUs counted from 0. Raises `UnreadableError`: no devices, no
    matrix, or one that does not fit the devices."""
    devices = [match for line in text.splitlines() if (match := _DEVICE.fullmatch(line))]
    gpus = [int(match[1]) for match in devices if _BUS.search(match[2])]
    cpus = [int(match[1]) for match in devices if not _BUS.search(match[2])]
    rates = _rocm_rates(text)
    if not gpus or not cpus or len(rates) < len(devices) or len(devices) != len({*gpus, *cpus}):
        raise UnreadableError("`rocm-bandwidth-test` printed no matrix of its devices")
    found: list[CopyRate] = []
    for number, gpu in enumerate(gpus):
        ways = {
            H2D: [rates[cpu].get(gpu) for cpu in cpus],
            D2H: [rates[gpu].get(cpu) for cpu in cpus],
            P2P: [rates[gpu].get(other) for other in gpus if other != gpu],
        }
        for direction, reported in ways.items():
            known = [rate for rate in reported if rate is not None]
            if known:
                best = min(known) if direction == P2P else max(known)
                found.append(CopyRate(direction, number, best))
    return tuple(found)


def _rocm_rates(text: str) -> dict[int, dict[int, float]]:
    """From → to → GB/s, of the unidirectional matrix."""
    _, reported, rest = text.partition("Unidirectional copy peak bandwidth")
    lines = re.split(r"B\w*directional copy", rest)[0].splitlines()
    head = next((line.split()[1:] for line in lines if line.split()[:1] == ["D/D"]), [])
    found: dict[int, dict[int, float]] = {}
    if not reported or not all(re.fullmatch(r"\d{1,3}", cell) for cell in head):
        return found
    for line in lines:
        match = _ROW.fullmatch(line)
        if match and len(match[2].split()) == len(head):
            cells = zip(head, map(_rate, match[2].split()), strict=True)
            found[int(match[1])] = {int(to): rate for to, rate in cells if rate is not None}
    return found


_HEAD = re.compile(r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]")
_PERFTEST_ROW = re.compile(
    r"\s*(\d{1,12})\s+(\d{1,12})\s+[\d.]{1,12}\s+(\d{1,6}(?:\.\d{1,6})?)(?:\s.*)?"
)
_TELLING = re.compile(
    r"Couldn't|Failed|failed|Unable|error|Error|syndrom|No route|not found|No such|not installed"
)


def parse_write_bw(text: str) -> float:
    """Gb/s, average, of the largest message. Raises `UnreadableError`: no result; with the line
    that says why."""
    head = _HEAD.search(text)
    rows = [match for line in text[head.end() :].splitlines()
            if (match := _PERFTEST_ROW.fullmatch(line))] if head else []  # fmt: skip
    if rows:
        return float(max(rows, key=lambda row: int(row[1]))[3])
    raise UnreadableError(error_line(text) or "ib_write_bw printed no bandwidth")


def error_line(text: str) -> str:
    """The line of a failed program that says most; empty if it said nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -*\t")]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[0 if telling else -1][:160]
