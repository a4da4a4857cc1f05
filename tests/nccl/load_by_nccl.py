"""Have a real libnccl load a plug-in, as far as it goes without a GPU. Run as a program.

`ncclCommInitRank` asks CUDA for a device before it loads plug-ins. So its inner functions are
called, found in the symbol table of the wheel's library, with a communicator that is all zeros.

Usage: load_by_nccl.py LIBNCCL net|profiler
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.nccl.wheels import symbols

NET_LOAD = ("_Z17ncclNetPluginInitv", "_Z17ncclNetPluginLoadP8ncclComm")
"""Of NCCL up to 2.21, and up to 2.26; later ones load in NET_INIT."""
NET_INIT = "_Z11ncclNetInitP8ncclComm"
NET_UNLOAD = ("_Z15ncclNetFinalizeP8ncclComm", "_Z19ncclNetPluginUnloadP8ncclComm")
PROFILER_INIT = "_Z22ncclProfilerPluginInitP8ncclComm"
PROFILER_UNLOAD = "_Z26ncclProfilerPluginFinalizeP8ncclComm"
CONTROL_START = "_Z31ncclProfilerStartProxyCtrlEventPvPS_"
CONTROL_RECORD = "_Z37ncclProfilerRecordProxyCtrlEventStatePvi"
"""Its end depends on the version."""
CONTROL_STOP = "_Z30ncclProfilerStopProxyCtrlEventPv"
PROXY_IDLE = 13
COMMUNICATOR_BYTES = 4 << 20


def _base(library: str) -> int:
    maps = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    return min(int(line.split("-")[0], 16) for line in maps if line.endswith(library))


class Nccl:
    """One library, and a communicator of it that is all zeros."""

    def __init__(self, library: str) -> None:
        self.known = symbols(library)
        self.loaded = ctypes.CDLL(library)
        self._base = _base(library)
        self.communicator = ctypes.create_string_buffer(COMMUNICATOR_BYTES)

    def call(self, name: str, *values: int) -> int:
        """An inner function, by what its name begins with."""
        [whole] = [known for known in self.known if known == name] or [
            known for known in self.known if known.startswith(name)
        ][:1]
        kinds = [ctypes.c_void_p] * (len(values) or 1)
        function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self._base + self.known[whole])
        return int(function(*(values or (ctypes.addressof(self.communicator),))))


def _pointers_into(memory: bytes, library: str) -> list[int]:
    """Words that point into a library's data."""
    maps = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    begins = [int(line.split("-")[0], 16) for line in maps if line.endswith(library)]
    found = [word for (word,) in struct.iter_unpack("=Q", memory) if word >= min(begins, default=0)]
    return [word for word in found if begins and word < max(begins) + (64 << 20)]


def load_net(nccl: Nccl) -> dict[str, int]:
    names = [*[name for name in NET_LOAD if name in nccl.known][:1], NET_INIT]
    names += [name for name in NET_UNLOAD if name in nccl.known][:1]
    return {name: nccl.call(name) for name in names}


def load_profiler(nccl: Nccl) -> dict[str, int]:
    """An event of the proxy's thread goes through NCCL's own adapters, too: the only one that needs
    nothing else of NCCL's. The mask has to have it."""
    if PROFILER_INIT not in nccl.known:
        return {}
    results = {PROFILER_INIT: nccl.call(PROFILER_INIT)}
    contexts = _pointers_into(nccl.communicator.raw, "libnccl-profiler-syntony.so")
    print(f"contexts {len(contexts)}")
    for context in contexts:
        handle = ctypes.c_void_p()
        results[CONTROL_START] = nccl.call(CONTROL_START, context, ctypes.addressof(handle))
        print(f"proxy event {bool(handle.value)}")
        results[CONTROL_RECORD] = nccl.call(CONTROL_RECORD, handle.value or 0, 0, PROXY_IDLE)
        results[CONTROL_STOP] = nccl.call(CONTROL_STOP, handle.value or 0)
    return results | {PROFILER_UNLOAD: nccl.call(PROFILER_UNLOAD)}


def main(library: str, which: str) -> int:
    """Load, initialise, finalise; 0 if every call says so."""
    nccl = Nccl(library)
    results = load_net(nccl) if which == "net" else load_profiler(nccl)
    print(nccl.loaded, results, flush=True)
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve()), sys.argv[2]))
