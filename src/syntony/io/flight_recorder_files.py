"""PyTorch flight-recorder dumps as files: one per rank, pickled or JSON.

Pickles come from other people's jobs and can run any code when they are loaded. Here every opcode
is looked at first, and only those that build numbers, texts and containers are let through.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

from syntony.errors import InputError
from syntony.input_files import read_bytes
from syntony.workload.bundle import Bundle, Codes, Gap, make_bundle
from syntony.workload.flight_recorder import Dump, collectives

MAX_BYTES = 256 << 20
"""Of one dump: 100 times what the default of 2,000 entries with stack traces takes."""
MAX_FILES = 16_384
MAX_RANK = 2**31 - 1
RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin))?$")
"""PyTorch ends the name of each rank's file with the rank."""
LISTS = frozenset({"build_intlist", "build_doublelist", "build_boollist"})
"""PyTorch's C++ pickler names these where it writes a list of one type: they return it."""
ALLOWED = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1",
    "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "GET",
    "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "POP", "POP_MARK",
    "GLOBAL", "REDUCE",
})  # fmt: skip
BROKEN = (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, EOFError,
          AttributeError, OverflowError, RecursionError, UnicodeDecodeError)  # fmt: skip
"""What hostile or truncated bytes raise while they are read."""


def is_dumps(folder: Path) -> bool:
    """Whether a directory may hold dumps: no manifest of a bundle, and names that end in a rank."""
    if (folder / "manifest.json").exists():
        return False
    return any(RANK.search(each.name) for each in folder.iterdir() if each.is_file())


def read_dumps(folder: Path) -> Bundle:
    """All dumps of a directory as a bundle of one table, `collectives`. Raises `InputError`: no
    file is a dump, or there are too many."""
    dumps: list[Dump] = []
    gaps: list[Gap] = []
    files = sorted(each for each in folder.iterdir() if each.is_file())
    if len(files) > MAX_FILES:
        raise InputError("too-many-files", f"{folder}: more than {MAX_FILES:,} files")
    for file in files:
        found = RANK.search(file.name)
        try:
            value = load(file)
            if found is None and not (isinstance(value, dict) and "rank" in value):
                raise ValueError("no rank in its name")
            rank = int(found.group(1)) if found else value["rank"]
            if not isinstance(rank, int) or not 0 <= rank <= MAX_RANK:
                raise ValueError("its rank is invalid")
            dumps.append(Dump(rank, value, file.stat().st_mtime_ns))
        except (OSError, *BROKEN) as error:
            text = " ".join(str(error).split())[:100]
            gaps.append(Gap("", f"{file.name} is not a flight-recorder dump that can be read"
                            f" ({text})", "what its rank did"))  # fmt: skip
    read = collectives(dumps)
    columns: dict[str, Any] = {
        name: _codes(values) if name in {"comm", "op", "host"} else values
        for name, values in read.columns.items()
    }
    reported = (*gaps, *read.gaps)
    if not len(read.columns["rank"]):
        why = reported[0].reason if reported else "it is empty"
        raise InputError("no-dumps", f"{folder}: no usable flight-recorder entry ({why})")
    return make_bundle(read.manifest, {"collectives": columns}, reported)


def load(file: Path) -> Any:
    """One file's numbers, texts and containers.

    Raises:
        ValueError and others of `BROKEN`: neither JSON nor such a pickle.
        OSError: it cannot be read, or is larger than 256 MiB.
    """
    data = read_bytes(file, MAX_BYTES)
    if data.lstrip()[:1] in {b"{", b"["}:
        return json.loads(data)
    return unpickle(data)


def unpickle(data: bytes) -> Any:
    """A pickle of numbers, texts and containers; nothing is imported and nothing called.

    Raises:
        ValueError and others of `BROKEN`: it is broken, or would do more.
    """
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in ALLOWED:
            raise pickle.UnpicklingError(f"opcode {opcode.name} is not allowed")
        if opcode.name.endswith("PUT") and int(str(argument)) > len(data):
            raise pickle.UnpicklingError("memo beyond its size")
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Only functions of PyTorch that return the list they get, as one of our own."""
        if module == "torch.jit._pickle" and name in LISTS:
            return _same
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")

    def persistent_load(self, pid: Any) -> Any:
        """There are no tensors in a dump."""
        raise pickle.UnpicklingError(f"persistent object {pid!r:.40}")


def _same(values: Any) -> Any:
    return values


def _codes(values: list[str]) -> Codes:
    import numpy as np

    names = {name: place for place, name in enumerate(dict.fromkeys(values))}
    return Codes(np.array([names[each] for each in values], dtype=np.int64), tuple(names))
