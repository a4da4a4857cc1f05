"""`nvidia-smi -q -x`, `nvidia-smi nvlink -s`, `-e` and `topo -m`.

Names of elements are of NVIDIA's nvsmi_device_v10 to v12 document types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree as ET

from syntony.audit.facts import UnreadableError

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LINK_RATE = re.compile(r"Link\s+(\d+):\s*([\d.]+)\s*GB/s")
_LINK_OFF = re.compile(r"Link\s+(\d+):\s*<?(inactive|disabled|off)>?", re.IGNORECASE)
_LINK_ERROR = re.compile(r"Link\s+(\d+):\s*([A-Za-z][A-Za-z /-]*?)\s*(?:Errors?)?:\s*(\d+)")
_GPU_LINE = re.compile(r"GPU\s+(\d+):\s*(.+?)(?:\s*\(UUID:.*)?$")
_ABSENT = frozenset(
    {"n/a", "[n/a]", "[not supported]", "not supported", "", "unknown error", "gpu is lost"}
)


class Gpu(NamedTuple):
    """One GPU's element; `text` and `number` look below it."""

    bus: str
    """``0000:18:00.0``"""
    element: ET.Element

    def text(self, path: str) -> str | None:
        """The text at a path such as ``ecc_mode/current_ecc``; None where nothing is said."""
        found = self.element.findtext(path)
        said = (found or "").strip()
        return None if said.lower() in _ABSENT else said

    def number(self, path: str) -> float | None:
        """The number that the text begins with (``"34 C"``); None where it does not."""
        match = _NUMBER.match(self.text(path) or "")
        return float(match[0]) if match else None


class Smi(NamedTuple):
    """The parsed output of one `nvidia-smi -q -x`."""

    driver: str
    cuda: str
    gpus: tuple[Gpu, ...]


class NvLinks(NamedTuple):
    gpu: int
    name: str
    rates: dict[int, float]
    """Link → GB/s of those that are up."""
    down: tuple[int, ...]


def parse_query(text: str) -> Smi:
    """Raises `UnreadableError` for anything but a whole document of `nvidia-smi -q -x`."""
    what = "`nvidia-smi -q -x`"
    if "<!ENTITY" in text:
        raise UnreadableError(f"{what} printed a document with entities of its own")
    try:
        root = ET.fromstring(text)  # noqa: S314 - no entities, see above
    except (ET.ParseError, ValueError) as error:
        raise UnreadableError(f"{what} printed no XML ({error})") from error
    if root.tag != "nvidia_smi_log":
        raise UnreadableError(f"{what} printed a document of another kind ({root.tag[:40]})")
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    attached = (root.findtext("attached_gpus") or "").strip()
    if attached.isdigit() and int(attached) != len(gpus):
        raise UnreadableError(f"{what} reports {attached} GPUs and describes {len(gpus)}")
    driver, cuda = (root.findtext(tag) or "" for tag in ("driver_version", "cuda_version"))
    return Smi(driver.strip(), cuda.strip(), gpus)


def _gpu(element: ET.Element) -> Gpu:
    bus = (element.get("id") or element.findtext("pci/pci_bus_id") or "").strip().lower()
    domain, _, rest = bus.partition(":")
    return Gpu(f"{domain[-4:]}:{rest}" if rest else bus or "?", element)


def parse_nvlink_status(text: str) -> tuple[NvLinks, ...]:
    """`nvidia-smi nvlink -s`. Raises `UnreadableError` where no GPU is reported."""
    found: list[tuple[int, str, dict[int, float], list[int]]] = []
    for line in text.splitlines():
        if match := _GPU_LINE.match(line.strip()):
            found.append((_small(match[1]), match[2], {}, []))
        elif not found:
            continue
        elif match := _LINK_RATE.search(line):
            found[-1][2][_small(match[1])] = float(match[2]) if _is_float(match[2]) else 0.0
        elif match := _LINK_OFF.search(line):
            found[-1][3].append(_small(match[1]))
    if not found:
        raise UnreadableError("`nvidia-smi nvlink -s` reported no GPU")
    return tuple(NvLinks(gpu, name, rates, tuple(down)) for gpu, name, rates, down in found)


def parse_nvlink_errors(text: str) -> Iterator[tuple[int, int, str, int]]:
    """`nvidia-smi nvlink -e`: (GPU, link, kind of error, count)."""
    gpu = None
    for line in text.splitlines():
        if match := _GPU_LINE.match(line.strip()):
            gpu = _small(match[1])
        elif gpu is not None and (match := _LINK_ERROR.search(line)):
            yield gpu, _small(match[1]), match[2].strip(), int(match[3][:18])


class GpuTopology(NamedTuple):
    """`nvidia-smi topo -m`: how near each NIC is to each GPU."""

    near: dict[tuple[str, str], str]
    """(``GPU0``, ``mlx5_0``) → ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS``."""
    nics: tuple[str, ...]


def parse_topology(text: str) -> GpuTopology:
    """Raises `UnreadableError` where there is no matrix."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
    legend = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)\s*$", "\n".join(lines), re.MULTILINE))
    heads = [line for line in lines if re.match(r"\s+GPU0\b", line)]
    if not heads:
        raise UnreadableError("`nvidia-smi topo -m` printed no matrix")
    columns = re.findall(r"\b(?:GPU|NIC)\d+\b|\bmlx5_\w+\b", heads[0])
    near = {}
    for line in lines[lines.index(heads[0]) + 1 :]:
        cells = line.split()
        if not cells or not re.fullmatch(r"GPU\d+", cells[0]):
            continue
        for column, cell in zip(columns, cells[1:], strict=False):
            if not column.startswith("GPU"):
                near[cells[0], legend.get(column, column)] = cell
    nics = tuple(legend.get(name, name) for name in columns if not name.startswith("GPU"))
    return GpuTopology(near, nics)


def _small(digits: str) -> int:
    return int(digits[:9])


def _is_float(text: str) -> bool:
    return re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text) is not None
