"""The bindings and the library say the same thing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.io import probe_packet as packet

from syntony.errors import MissingError
from syntony.io import _library, job_page, job_socket, probe_records
from syntony.model.probes import ProbeFlag
from syntony.traffic.process_flows import RECORD, Mechanism


@pytest.fixture
def native() -> Any:
    return _library.library()


def test_flags_have_the_headers_values(native: Any) -> None:
    for flag in ProbeFlag:
        assert getattr(native, f"SYN_{flag.name}") == flag.value


def test_every_counter_is_read() -> None:
    _library.library()
    fields = _library.ffi.typeof("struct syn_probe_counters").fields
    assert fields is not None
    assert tuple(name for name, _ in fields) == probe_records.Counters.__struct_fields__


def test_packet_constants_have_the_headers_values(native: Any) -> None:
    assert native.SYN_PACKET_BYTES == packet.PACKET_BYTES
    assert (native.SYN_PACKET_REQUEST, native.SYN_PACKET_REPLY) == (packet.REQUEST, packet.REPLY)
    assert (native.SYN_PACKET_LATE, native.SYN_PACKET_HARDWARE) == (packet.LATE, packet.HARDWARE)


@pytest.mark.parametrize(
    ("dtype", "struct"),
    [
        (probe_records.RECORD, "syn_probe_record"),
        (probe_records.HEARD, "syn_probe_heard"),
    ],
)
def test_arrays_have_the_structs_bytes(dtype: np.dtype[np.void], struct: str) -> None:
    """A value written through the struct is read through the array, field by field."""
    ffi = _library.ffi
    row = ffi.new(f"struct {struct} *")
    assert dtype.itemsize == ffi.sizeof(f"struct {struct}")
    assert dtype.names is not None
    for index, name in enumerate(dtype.names):
        setattr(row, name, 1000 + index)
    array = np.frombuffer(bytes(ffi.buffer(row)), dtype)
    assert [int(array[name][0]) for name in dtype.names] == [
        1000 + index for index in range(len(dtype.names))
    ]


def test_the_parser_of_flows_has_the_headers_layout(native: Any) -> None:
    flow = _library.ffi.new("struct syn_job_flow *")
    fields = _library.ffi.typeof("struct syn_job_flow").fields
    assert fields is not None
    for number, (name, field) in enumerate(fields, 1):
        length = field.type.length if field.type.kind == "array" else 0
        value: Any = bytes([number]) * length if length else number
        setattr(flow, name, value)
    raw = bytes(_library.ffi.buffer(flow))
    assert len(raw) == RECORD.size
    numbers = [each[0] if isinstance(each, bytes) else each for each in RECORD.unpack(raw)]
    assert numbers == list(range(1, len(fields) + 1))
    assert native.SYN_JOB_FLOWS == job_page.MAX_FLOWS
    assert bytes([native.SYN_JOB_PAGE_VERSION]) == job_socket.PAGE_VERSION
    for subject in job_page.Subject:
        assert getattr(native, f"SYN_JOB_{subject.name}") == subject.value
    for mechanism in Mechanism:
        assert getattr(native, f"SYN_JOB_{mechanism.name}") == mechanism.value


def test_signed_fields_stay_signed() -> None:
    assert probe_records.RECORD["t1_ns"].kind == "i"
    assert probe_records.RECORD["flow_id"].kind == "u"


def test_another_abi_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_ABI", 999)
    with pytest.raises(MissingError, match=r"has ABI \d+, not 999; reinstall"):
        _library.library.__wrapped__()
