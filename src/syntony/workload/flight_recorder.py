"""Reads flight-recorder dumps of PyTorch's c10d as the table `collectives`.

Formats since 2.2: a bare list of entries; version 1 with `seq_id`; version 2 with
`collective_seq_id` and `p2p_seq_id` (torch/csrc/distributed/c10d/FlightRecorder.hpp). Entries are
numbered within their process group; ranks are the job's. Instants are those of each host's own
clock, and ends are when a watchdog noticed them: enough to find ranks that are absent, not those
that are late.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from syntony.workload.bundle import NULL, OWN_CLOCKS, Gap, Manifest
from syntony.workload.schema import FORMAT, VERSION

KNOWN = ("1.", "2.")
MAX_ENTRIES = 1_000_000
"""Maximum entries of one dump."""
EQUAL_SIZES = frozenset({
    "all_reduce", "allreduce", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop",
    "_all_gather_base", "all_gather_into_tensor_coalesced", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "allreduce_coalesced", "all_gather_single",
    "reduce_scatter_single",
})  # fmt: skip
"""Operations for which every rank must contribute the same number of bytes; for others sizes may
differ."""
ITEM_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
PEERS = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")


COLUMNS = ("comm", "seq", "op", "rank", "host", "enqueue_ns", "done_ns", "bytes", "nranks")


class Dump(NamedTuple):
    """One rank's file as plain values."""

    rank: int
    value: Any
    written_ns: int
    """When the file was last written."""


class Read(NamedTuple):
    """Columns of `collectives` as lists or arrays of one length, the manifest, and gaps."""

    columns: dict[str, Any]
    manifest: Manifest
    gaps: tuple[Gap, ...]


class _Entry(NamedTuple):
    comm: str
    seq: int
    op: str
    enqueue_ns: int
    done_ns: int
    size: float
    nranks: float


def collectives(dumps: Sequence[Dump]) -> Read:
    """All entries of all dumps. Unusable ones are left out and listed."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    gaps: list[Gap] = []
    groups: dict[str, set[int]] = defaultdict(set)
    seen: set[int] = set()
    for dump in dumps:
        entries, host, version = _parts(dump)
        if dump.rank in seen:
            gaps.append(Gap("", f"a second dump of rank {dump.rank} is left out"))
            continue
        if version and not version.startswith(KNOWN):
            gaps.append(Gap("", f"dump of rank {dump.rank} has version {version[:20]!r}, read as"
                            " version 2"))  # fmt: skip
        config = dump.value.get("pg_config") if isinstance(dump.value, dict) else None
        members = _members(config)
        for name, ranks in members.items():
            groups[name] |= ranks
        kept = [one for each in entries[:MAX_ENTRIES]
                if (one := _entry(each, members)) is not None]  # fmt: skip
        if len(kept) < len(entries):
            gaps.append(Gap("", f"dump of rank {dump.rank}: {len(entries) - len(kept):,} of"
                            f" {len(entries):,} entries make no sense"))  # fmt: skip
        if not kept:
            gaps.append(Gap("", f"dump of rank {dump.rank} has no entries", "what it did"))
            continue
        seen.add(dump.rank)
        for one in kept:
            values = (one.comm, one.seq, one.op, dump.rank, host, one.enqueue_ns, one.done_ns,
                      one.size, one.nranks)  # fmt: skip
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    absent = sorted(set().union(*groups.values()) - seen)
    if absent and seen:
        names = ", ".join(str(each) for each in absent[:8]) + (" …" if len(absent) > 8 else "")
        gaps.append(Gap("", f"no dump of {len(absent)} of {len(absent) + len(seen)} ranks"
                        f" ({names})", "whether the others wait for one of these"))  # fmt: skip
    return Read(_typed(columns), _manifest(columns, dumps), tuple(gaps))


def _typed(columns: dict[str, list[Any]]) -> dict[str, Any]:
    kinds = dict.fromkeys(("seq", "rank", "enqueue_ns", "done_ns"), np.int64) | dict.fromkeys(
        ("bytes", "nranks"), np.float64)  # fmt: skip
    return {name: np.array(values, dtype=kinds[name]) if name in kinds else values
            for name, values in columns.items()}  # fmt: skip


def _manifest(columns: dict[str, list[Any]], dumps: Sequence[Dump]) -> Manifest:
    """A dump has no creation time: the first file was written then, or later."""
    last = max([*columns["enqueue_ns"], *columns["done_ns"]], default=0)
    written = min((dump.written_ns for dump in dumps), default=0)
    return Manifest(format=FORMAT, version=VERSION, timeline=OWN_CLOCKS,
                    end_ns=max(last, written))  # fmt: skip


def _parts(dump: Dump) -> tuple[list[Any], str, str]:
    """Entries, host, version."""
    value = dump.value
    if isinstance(value, list):  # before 2.3
        return value, f"host of rank {dump.rank}", ""
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        return [], "", ""
    host = value.get("host_name") or value.get("hostname")
    named = host if isinstance(host, str) and host else f"host of rank {dump.rank}"
    version = value.get("version")
    return value["entries"], _text(named), version if isinstance(version, str) else ""


def _members(config: Any) -> dict[str, set[int]]:
    """Ranks by process group: lists, or texts like `[0, 1]`."""
    members = {}
    for name, each in config.items() if isinstance(config, dict) else ():
        ranks = each.get("ranks") if isinstance(each, dict) else None
        if isinstance(ranks, str):
            try:
                ranks = ast.literal_eval(ranks[: 1 << 20])
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        if isinstance(ranks, (list, tuple, set)) and all(_whole(rank) for rank in ranks):
            members[_name(name)] = set(ranks)
    return members


def _name(value: Any) -> str:
    """A text or number as a name. Any other type could be nested, with text of unlimited length."""
    return _text(value) if isinstance(value, str) else str(value) if _whole(value) else "?"


def _text(value: str) -> str:
    """A name as valid UTF-8: JSON and pickles may contain half of a surrogate pair."""
    return value[:200].encode(errors="replace").decode()


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _entry(each: Any, members: dict[str, set[int]]) -> _Entry | None:
    """One entry; None if a required field is missing."""
    if not isinstance(each, dict):
        return None
    name, state = each.get("profiling_name"), each.get("state")
    created = each.get("time_created_ns")
    if created is None and _whole(each.get("time_created_us")):
        created = each["time_created_us"] * 1000
    if not isinstance(name, str) or not isinstance(state, str) or not _whole(created):
        return None
    group = each.get("process_group") or each.get("pg_name") or each.get("pg_id") or "0"
    comm = _name(group[0] if isinstance(group, (list, tuple)) and group else group)
    op = _text(name.split(":", 1)[-1])
    between = PEERS.search(op)
    seq = each.get("collective_seq_id", each.get("seq_id"))
    ranks = members.get(comm) or (members.get("") if len(members) == 1 else None)
    nranks = float(len(ranks)) if ranks else math.nan
    if between is not None:
        seq = each.get("p2p_seq_id", seq)
        ends = sorted((int(between.group(2)[:9]), int(between.group(3)[:9])))
        comm, op, nranks = f"{comm} p2p {ends[0]}-{ends[1]}", between.group(1), 2.0
    if not _whole(seq):
        return None
    done = NULL
    if state == "completed" or each.get("retired") is True:  # gloo's state stays `scheduled`
        reported = each.get("time_discovered_completed_ns")
        done = reported if _whole(reported) and reported > created else created
    return _Entry(comm, seq, op, created, done, _bytes(each, op), nranks)


def _bytes(each: dict[str, Any], op: str) -> float:
    """Bytes that the rank contributes, where all must contribute the same; else NaN."""
    sizes, kinds = each.get("input_sizes"), each.get("input_dtypes")
    if op not in EQUAL_SIZES or not isinstance(sizes, list):
        return math.nan
    kinds = kinds if isinstance(kinds, list) and len(kinds) == len(sizes) else ["Byte"] * len(sizes)
    total = 0.0
    for size, kind in zip(sizes, kinds, strict=True):
        if not isinstance(size, (list, tuple)) or not all(_whole(each) for each in size):
            return math.nan
        total += math.prod(float(each) for each in size) * ITEM_BYTES.get(_name(kind), 1)
    return total
