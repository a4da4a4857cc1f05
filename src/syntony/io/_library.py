"""Loads the native library with the declarations that the build took from its public headers."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import syntony.io
from syntony.errors import MissingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ABI = 8
"""SYN_ABI of the headers these bindings were written for."""
_INTEGERS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


def _declarations() -> Any:
    try:
        return importlib.import_module("syntony.io._native._abi").ffi
    except ModuleNotFoundError as error:
        raise MissingError(
            "the native library is not installed; run `pip install .` with a C compiler"
        ) from error


ffi: Any = _declarations()
"""cffi's view of the public headers (native/emit_abi.py)."""


@functools.cache
def library() -> Any:
    """The loaded library, every declared function an attribute. Raises `MissingError`: it was not
    built, or was built for other bindings."""
    path = _path()
    loaded: Any = ffi.dlopen(str(path))
    if loaded.syn_abi() != _ABI:
        raise MissingError(f"{path} has ABI {loaded.syn_abi()}, not {_ABI}; reinstall syntony")
    return loaded


def _path() -> Path:
    for base in syntony.io.__path__:
        path = Path(base) / "_native" / "libsyntony.so"
        if path.exists():
            return path
    raise MissingError("libsyntony.so is not installed; run `pip install .` with a C compiler")


def pointer_to(array: NDArray[Any], element: str) -> Any:
    """The elements of a contiguous array; the array must outlive the pointer's use."""
    return ffi.cast(_pointer(element), array.__array_interface__["data"][0])


@functools.cache
def _pointer(element: str) -> Any:
    return ffi.typeof(f"{element} *")


def text_of(characters: Any) -> str:
    raw = ffi.string(characters)
    return raw if isinstance(raw, str) else raw.decode()


def dtype_of(struct: str) -> np.dtype[np.void]:
    """The numpy layout of a declared struct of integers and arrays of them, byte for byte."""
    import numpy as np  # not needed by a command that only reads /proc

    library()
    fields = ffi.typeof(f"struct {struct}").fields or ()
    names = [name for name, _ in fields]
    formats = [_format_of(field.type) for _, field in fields]
    offsets = [field.offset for _, field in fields]
    itemsize = ffi.sizeof(f"struct {struct}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


def _format_of(kind: Any) -> str | tuple[str, int]:
    if kind.kind == "array":
        return str(_format_of(kind.item)), kind.length
    code = _INTEGERS[ffi.sizeof(kind)]
    return code.replace("u", "i") if kind.cname.startswith("int") else code
