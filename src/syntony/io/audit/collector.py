"""Runs on an audited host, where nothing of Syntony is installed: `ssh HOST python3 -`.

Reads what checks name and writes it as one tar.gz on standard output: a recorded tree. Standard
library only, and nothing newer than Python 3.6. It changes nothing. Anyone who sends it puts
in front of it `PARAMETERS` (``{"files": [...], "commands": [[...]], "timeout_s": ...,
"later_s": ...}`` as JSON) and `HOST`, the name the host is audited under.
"""

import contextlib
import glob
import gzip
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any, BinaryIO, Dict, List, Optional, Set, Tuple

LIMIT = 8 << 20
TOTAL_LIMIT = 256 << 20
LATER = re.compile(r"^/sys/class/net/|/ports/|^/proc/\d+/stat$")
PLACES = {
    "DEVICE": "/sys/class/infiniband/*",
    "NETDEV": "/sys/class/net/*/device",
    "NVME": "/sys/class/nvme/*",
    "PORT": "/sys/class/infiniband/*/ports/*",
}
GPUS = ("/proc/driver/nvidia/gpus/*", "/sys/module/amdgpu/drivers/pci:amdgpu/*:*:*")


class Tree:
    """A tar archive of real files, links kept as links."""

    def __init__(self, out: BinaryIO) -> None:
        self.zip = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1)
        self.tar = tarfile.open(fileobj=self.zip, mode="w|")  # noqa: SIM115
        self.seen: Set[str] = set()
        self.size = 0

    def add_bytes(self, name: str, content: bytes) -> None:
        if name in self.seen or self.size > TOTAL_LIMIT:
            return
        self.seen.add(name)
        self.size += len(content) + 512
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.size = len(content)
        entry.mode = 0o644
        self.tar.addfile(entry, io.BytesIO(content))

    def add_special(self, name: str, kind: bytes, target: str = "") -> None:
        if name in self.seen:
            return
        self.seen.add(name)
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.type = kind
        entry.linkname = target
        entry.mode = 0o755
        self.tar.addfile(entry)

    def add_path(self, path: str, prefix: str = "", depth: int = 0) -> None:
        """A file or a link, and every link on the way to it; of a directory only that it is."""
        walked = ""
        for part in path.strip("/").split("/"):
            parent, walked = walked, walked + "/" + part
            if os.path.islink(walked):
                target = os.readlink(walked)
                full = os.path.normpath(os.path.join(parent or "/", target))
                # Relative links stay inside the tree wherever it is unpacked.
                self.add_special(
                    prefix + walked, tarfile.SYMTYPE, os.path.relpath(full, parent or "/")
                )
                rest = path.strip("/")[len(walked) - 1 :].strip("/")
                if depth < 16:
                    self.add_path(full + ("/" + rest if rest else ""), prefix, depth + 1)
                return
        if os.path.isdir(path):
            self.add_special(prefix + path, tarfile.DIRTYPE)
            return
        special = os.path.exists(path) and not os.path.isfile(path)
        content = b"" if special else read(path)
        if content is not None:
            # Of a library, only existence and size are needed.
            content = content[:64] if ".so" in path else content
            self.add_bytes(prefix + path, content)


def read(path: str) -> Optional[bytes]:
    """The file's bytes; None for one that cannot be read or is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    pieces = []
    size = 0
    try:
        while size < LIMIT:
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def names(pattern: str) -> List[str]:
    """What a place holds: DEVICE is the last part of each match of its pattern."""
    found = []
    for path in sorted(glob.glob(pattern)):
        parts = path.rstrip("/").split("/")
        found.append(parts[-2] if parts[-1] == "device" else parts[-1])
    return found


def expand(words: List[str]) -> List[List[str]]:
    """A command for every value of the CAPITALS in it."""
    wanted = sorted({mark for word in words for mark in re.findall(r"\b[A-Z]{4,8}\b", word)})
    if any(mark not in PLACES and mark not in ("ADDRESS", "GPUS", "HOST") for mark in wanted):
        return []
    commands = []
    for values in itertools.product(*(values_of(mark) for mark in wanted)):
        line = list(words)
        for mark, value in zip(wanted, values):
            line = [word.replace(mark, value) for word in line]
        commands.append(line)
    return commands


def values_of(mark: str) -> List[str]:
    """What a mark stands for on this host."""
    if mark == "GPUS":
        count = next((len(found) for found in map(glob.glob, GPUS) if found), 0)
        return [str(count)] if count else []
    if mark == "HOST":
        return [HOST]  # type: ignore[name-defined]  # noqa: F821 - put in front
    if mark != "ADDRESS":
        return sorted(set(names(PLACES[mark])))
    real = [os.path.realpath(path) for path in glob.glob("/sys/class/infiniband/*/device")]
    return sorted({path.rsplit("/", 1)[-1] for path in real})


def run(
    words: List[str], timeout_s: float, environment: Dict[str, str]
) -> Optional[Tuple[bytes, int]]:
    """(output, exit status), or None where the program is not installed."""
    program = shutil.which(words[0], path=environment["PATH"])
    if program is None:
        return None
    process = subprocess.Popen(
        [program, *words[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        output, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        return b"no answer in %d s" % timeout_s, 124
    if process.returncode:
        return (complaint or output)[:4096], process.returncode
    return output[:LIMIT], 0


def environment() -> Dict[str, str]:
    """Ours, in the C locale, with administrators' directories on the path."""
    more = ":/usr/local/sbin:/usr/sbin:/sbin:/opt/rocm/bin:/usr/local/bin:/usr/bin:/bin"
    path = os.environ.get("PATH", "") + more
    return dict(os.environ, LC_ALL="C", LANG="C", PATH=path)


def collect_commands(
    commands: List[List[str]], timeout_s: float
) -> List[Tuple[List[str], Optional[Tuple[bytes, int]]]]:
    """All at once: (command, outcome) pairs."""
    found: List[Tuple[List[str], Optional[Tuple[bytes, int]]]] = []
    lock = threading.Lock()
    waiting = [line for words in commands for line in expand(words)]

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                line = waiting.pop()
            outcome = run(line, timeout_s, environment())
            with lock:
                found.append((line, outcome))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def collect_alone(
    commands: List[List[str]], limit_s: float
) -> List[Tuple[List[str], Optional[Tuple[bytes, int]]]]:
    """One after the other: they load the host, and would measure each other."""
    end = time.monotonic() + limit_s
    return [
        (line, run(line, max(1.0, end - time.monotonic()), environment()))
        for words in commands
        for line in expand(words)
    ]


def main(parameters: Dict[str, Any]) -> None:
    started = time.monotonic()
    tree = Tree(sys.stdout.buffer)
    outcomes = collect_commands(parameters["commands"], parameters["timeout_s"])
    outcomes += collect_alone(parameters["alone"], parameters["alone_s"])
    for line, outcome in outcomes:
        name = " ".join(line).replace("%", "%25").replace("/", "%2F")
        if outcome is None:
            tree.add_bytes("commands/{}.absent".format(line[0].replace("/", "%2F")), b"")
            continue
        tree.add_bytes("commands/" + name, outcome[0])
        if outcome[1]:
            tree.add_bytes("commands/" + name + ".exit", b"%d" % outcome[1])
    paths = sorted({path for each in parameters["files"] for path in glob.glob(each)})
    for path in paths:
        tree.add_path(path)
    if parameters["later_s"]:
        time.sleep(max(0, started + parameters["later_s"] - time.monotonic()))
        for path in paths:
            if LATER.search(path):
                tree.add_path(path, "later")
    tree.tar.close()
    tree.zip.close()
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(json.loads(PARAMETERS))  # type: ignore[name-defined]  # noqa: F821 - put in front
