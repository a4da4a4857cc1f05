"""The native library, with its declarations read from the headers installed beside it."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cffi
import numpy as np

import syntony.io
from syntony.errors import MissingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ABI = 1
"""SYN_ABI of the headers these bindings were written for."""
_HEADERS = ("syn_clock.h", "syn_packet.h", "syn_probe.h")
_DECLARATIONS = re.compile(
    r"/\* --- declarations --- \*/(.*?)/\* --- end of declarations --- \*/", re.DOTALL
)
_INTEGERS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}

ffi = cffi.FFI()


def _directory() -> Path:
    for base in syntony.io.__path__:
        found = Path(base) / "_native"
        if (found / "libsyntony.so").exists():
            return found
    raise MissingError("libsyntony.so is not installed; run `pip install .` with a C compiler")


@functools.cache
def library() -> Any:
    """The loaded library, every declared function an attribute.

    Raises:
        MissingError: it was not built, or was built for other bindings.
    """
    directory = _directory()
    for name in _HEADERS:
        text = (directory / name).read_text(encoding="utf-8")
        for block in _DECLARATIONS.findall(text):
            ffi.cdef(block)
    loaded: Any = ffi.dlopen(str(directory / "libsyntony.so"))
    if loaded.syn_abi() != _ABI:
        raise MissingError(
            f"{directory}/libsyntony.so has ABI {loaded.syn_abi()}, not {_ABI}; reinstall syntony"
        )
    return loaded


def pointer_to(array: NDArray[Any], element: str) -> Any:
    """The elements of a contiguous array; the array must outlive the pointer's use."""
    return ffi.cast(f"{element} *", array.ctypes.data)


def text_of(characters: Any) -> str:
    """A C string."""
    raw = ffi.string(characters)
    return raw if isinstance(raw, str) else raw.decode()


def dtype_of(struct: str) -> np.dtype[np.void]:
    """The numpy layout of a declared struct of integers, byte for byte."""
    library()
    fields = ffi.typeof(f"struct {struct}").fields or ()
    names: list[str] = []
    formats: list[str] = []
    offsets: list[int] = []
    for name, field in fields:
        code = _INTEGERS[ffi.sizeof(field.type.cname)]
        names.append(name)
        formats.append(code.replace("u", "i") if field.type.cname.startswith("int") else code)
        offsets.append(field.offset)
    itemsize = ffi.sizeof(f"struct {struct}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})
