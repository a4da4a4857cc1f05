"""Have a real libnccl load the net plug-in, as far as it goes without a GPU. Run as a program.

`ncclCommInitRank` asks CUDA for a device before it loads plug-ins. So its inner functions are
called, found in the symbol table of the wheel's library, with a communicator that is all zeros.

Usage: load_by_nccl.py LIBNCCL
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.nccl.wheels import symbols

ENVIRONMENT = "_Z7initEnvv"
"""Reads NCCL's own file, as `ncclCommInitRank` does first; later libraries do so by themselves."""
LOAD = ("_Z17ncclNetPluginInitv", "_Z17ncclNetPluginLoadP8ncclComm")
"""Of NCCL up to 2.21, and up to 2.26; later ones load in INIT."""
INIT = "_Z11ncclNetInitP8ncclComm"
UNLOAD = ("_Z15ncclNetFinalizeP8ncclComm", "_Z19ncclNetPluginUnloadP8ncclComm")
COMMUNICATOR_BYTES = 4 << 20


def _base(library: str) -> int:
    maps = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    return min(int(line.split("-")[0], 16) for line in maps if line.endswith(library))


def main(library: str) -> int:
    """Load, initialise, finalise; 0 if every call says so."""
    known = symbols(library)
    loaded = ctypes.CDLL(library)
    base = _base(library)
    communicator = ctypes.create_string_buffer(COMMUNICATOR_BYTES)

    def call(name: str) -> int:
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + known[name])
        return int(function(ctypes.addressof(communicator)))

    if ENVIRONMENT in known:
        call(ENVIRONMENT)
    names = [*[name for name in LOAD if name in known][:1], INIT]
    names += [name for name in UNLOAD if name in known][:1]
    results = {name: call(name) for name in names}
    print(loaded, results, flush=True)
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
