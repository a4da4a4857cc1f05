"""Turn the public headers' declarations into a Python module (cffi's out-of-line ABI mode).

    python emit_abi.py OUT HEADER…

Run by the build. Parsing C at start-up instead would cost every agent 3 MB and 50 ms.
"""

import re
import sys
from pathlib import Path

import cffi

DECLARATIONS = re.compile(
    r"/\* --- declarations --- \*/(.*?)/\* --- end of declarations --- \*/", re.DOTALL
)


def main(out: str, headers: list[str]) -> None:
    ffi = cffi.FFI()
    for header in headers:
        for block in DECLARATIONS.findall(Path(header).read_text(encoding="utf-8")):
            ffi.cdef(block)
    ffi.set_source("syntony.io._native._abi", None)
    ffi.emit_python_code(out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
