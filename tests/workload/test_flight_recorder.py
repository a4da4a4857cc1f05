"""Flight-recorder dumps: what is read of each version, and hostile ones."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.errors import InputError
from syntony.io.flight_recorder_files import is_dumps, load, read_dumps, unpickle
from syntony.workload import diagnose
from syntony.workload.bundle import NULL
from syntony.workload.flight_recorder import Dump, collectives

T0 = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def entry(seq: int, rank: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    begun = T0 + seq * SECOND + rank * 1000
    return {
        "profiling_name": "nccl:all_reduce", "state": state, "time_created_ns": begun,
        "time_discovered_completed_ns": begun + 5_000_000 if state == "completed" else None,
        "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0,
        "input_sizes": [[1024, 4]], "input_dtypes": ["Float"], "retired": state == "completed",
    } | more  # fmt: skip


def dump(entries: list[dict[str, Any]], ranks: int = 4, version: str = "2.5") -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(ranks)])}}
    return {"version": version, "pg_config": config, "entries": entries}


def hung(missing: int = 2, ranks: int = 4) -> dict[int, dict[str, Any]]:
    """All wait in operation 6 but one rank, which never came."""
    return {
        rank: dump([entry(seq, rank) for seq in range(6)]
                   + ([] if rank == missing else [entry(6, rank, "started")]), ranks)
        for rank in range(ranks)
    }  # fmt: skip


def written(folder: Path, dumps: dict[int, Any], after_ns: int = 120 * SECOND) -> Path:
    for rank, value in dumps.items():
        file = folder / f"nccl_trace_rank_{rank}"
        file.write_bytes(pickle.dumps(value, protocol=2))
        os.utime(file, ns=(T0 + after_ns, T0 + after_ns))
    return folder


def test_the_rank_that_did_not_come_is_named(tmp_path: Path) -> None:
    (verdict,) = diagnose(read_dumps(written(tmp_path, hung(missing=2)))).verdicts
    assert verdict.fault == "hang"
    assert verdict.subjects == ("rank 2",)


def test_a_job_that_ran_to_its_end_has_no_hang(tmp_path: Path) -> None:
    dumps = {rank: dump([entry(seq, rank) for seq in range(6)]) for rank in range(4)}
    assert not diagnose(read_dumps(written(tmp_path, dumps))).verdicts


def test_an_absent_dump_is_said(tmp_path: Path) -> None:
    dumps = {rank: each for rank, each in hung(missing=2).items() if rank != 3}
    gaps = read_dumps(written(tmp_path, dumps)).gaps
    assert any("no dump of 1 of 4 ranks (3)" in gap.reason and gap.limits for gap in gaps)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # bare list, before 2.3: no version, `seq_id`
        ([{"profiling_name": "nccl:broadcast", "state": "completed", "seq_id": 7,
           "time_created_ns": T0, "time_discovered_completed_ns": T0 + 9}],
         ("0", 7, "broadcast", T0 + 9)),
        ({"version": "1.0", "entries": [
            {"profiling_name": "nccl:all_reduce", "state": "started", "seq_id": 3, "pg_id": 5,
             "time_created_us": T0 // 1000}]}, ("5", 3, "all_reduce", NULL)),
        (dump([entry(4, 0)]), ("0", 4, "all_reduce", T0 + 4 * SECOND + 5_000_000)),
        # point to point: numbered by itself, one communicator for each pair
        (dump([entry(4, 0, profiling_name="nccl:send 0->3", p2p_seq_id=9)]),
         ("0 p2p 0-3", 9, "send", T0 + 4 * SECOND + 5_000_000)),
        # gloo's state stays `scheduled`; `retired` says that it ended, nobody saw when
        (dump([entry(4, 0, "scheduled", retired=True)]),
         ("0", 4, "all_reduce", T0 + 4 * SECOND)),
    ],
)  # fmt: skip
def test_each_version(value: Any, expected: tuple[Any, ...]) -> None:
    read = collectives([Dump(0, value, T0)])
    got = tuple(read.columns[name][0] for name in ("comm", "seq", "op", "done_ns"))
    assert got == expected


def test_bytes_are_elements_times_their_size() -> None:
    read = collectives([Dump(0, dump([entry(1, 0)]), T0)])
    assert read.columns["bytes"].tolist() == [1024 * 4 * 4]


class _Runs:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    evil = pickle.dumps([_Runs(f"touch {mark}")], protocol=protocol)
    with pytest.raises(pickle.UnpicklingError):
        unpickle(evil)
    assert not mark.exists()


@pytest.mark.parametrize(
    "module", ["builtins eval", "os system", "torch.jit._pickle build_intlist\ncposix system"]
)
def test_only_the_names_of_lists_are_known(module: str) -> None:
    name, function = module.split(" ", 1)
    with pytest.raises(pickle.UnpicklingError):
        unpickle(f"c{name}\n{function}\n(S'true'\ntR.".encode())


@pytest.mark.parametrize("opcodes", [b"}S'a'\nK\x01sb.", b"(K\x01o.", b")\x81.", b"0\x82\x01."])
def test_what_could_change_or_make_objects_is_refused(opcodes: bytes) -> None:
    """Also on the names that are known: BUILD, OBJ, NEWOBJ, EXT1."""
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        unpickle(b"ctorch.jit._pickle\nbuild_intlist\n" + opcodes)


def test_lists_of_one_type_as_the_cpp_pickler_writes_them() -> None:
    data = b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n(](K\x01K\x02etR."
    assert "REDUCE" in {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert unpickle(data) == [1, 2]


def test_texts_without_end_are_not_made() -> None:
    """Sixty levels that share their parts: 2**60 letters once written out."""
    nested: Any = "x"
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    value = dump([entry(1, 0, process_group=[nested], input_dtypes=[nested])], version=nested)
    assert collectives([Dump(0, value, T0)]).columns["comm"] == ["?"]


@pytest.mark.parametrize("rank", [-1, 2**31, 10**30, "0", None, [0], 1.5])
def test_a_rank_that_cannot_be_one(tmp_path: Path, rank: Any) -> None:
    (tmp_path / "0").write_text(json.dumps(dump([entry(1, 0)])))
    (tmp_path / "other.json.x").write_text(json.dumps(dump([entry(1, 0)]) | {"rank": rank}))
    gaps = read_dumps(tmp_path).gaps
    assert any("other.json.x is not a flight-recorder dump" in gap.reason for gap in gaps)


def test_half_a_letter_can_be_printed() -> None:
    value = dump([entry(1, 0, profiling_name="nccl:\ud800", process_group=["\udfff"])])
    read = collectives([Dump(0, value, T0)])
    assert (read.columns["op"][0] + read.columns["comm"][0]).encode()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = ("profiling_name", "state", "time_created_ns", "time_discovered_completed_ns",
        "process_group", "collective_seq_id", "p2p_seq_id", "input_sizes", "input_dtypes",
        "retired", "pg_id", "seq_id", "time_created_us")  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), max_size=4), VALUES,
       VALUES)  # fmt: skip
@settings(max_examples=150)
def test_any_values(changes: list[dict[str, Any]], config: Any, version: Any) -> None:
    value = {"entries": [entry(1, 0), *(entry(2, 0) | each for each in changes), config],
             "pg_config": config, "version": version}  # fmt: skip
    read = collectives([Dump(0, value, T0), Dump(1, config, T0), Dump(0, value, T0)])
    assert len({len(column) for column in read.columns.values()}) == 1
    assert read.columns["seq"][0] == 1


def test_broken_bytes(tmp_path: Path) -> None:
    """Truncated and damaged dumps beside a whole one; the seed is printed."""
    seed = random.getrandbits(32)
    rng = random.Random(seed)
    print(f"seed {seed}")
    whole = pickle.dumps(hung()[0], protocol=2)
    file = tmp_path / "dump_1"
    for _ in range(150):
        data = bytearray(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.4 else whole)
        for _ in range(rng.randrange(0, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data)
        (tmp_path / "dump_0").write_bytes(whole)
        assert is_dumps(tmp_path)
        diagnose(read_dumps(tmp_path))


def test_nothing_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(InputError, match="no usable flight-recorder entry"):
        read_dumps(tmp_path)
    (tmp_path / "deep_1").write_bytes(b"[" * 100_000)
    with pytest.raises(RecursionError):
        load(tmp_path / "deep_1")
    with pytest.raises(InputError):
        read_dumps(tmp_path)
