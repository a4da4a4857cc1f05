"""Record this commit as the version before: what every process of a real fleet encodes.

    .venv/bin/python -m tests.wire.before.record

Runs a lab, the commands that ask its controller, a drill and the enrolment tests, with
`syntony.wire.coding.encode` wrapped in every process, and writes `messages.msgpack`,
`protocol.txt` and `COMMIT` beside this file. Ten minutes; says which kinds were not seen.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import msgspec
from tests.wire import test_contract

from syntony.wire import messages as m

HERE = Path(__file__).parent
LARGEST = 16_000
WRAP = """
import os
where = os.environ.get("SYNTONY_RECORD")
if where:
    import hashlib, syntony.wire.coding as coding
    plain = coding.encode
    def encode(message):
        data = plain(message)
        if len(data) < int(os.environ["SYNTONY_RECORD_LARGEST"]):
            name = f"{type(message).__name__}.{hashlib.sha1(data).hexdigest()}"
            try:
                with open(os.path.join(where, name), "xb") as file:
                    file.write(data)
            except OSError:
                pass
        return data
    coding.encode = encode
"""
LAB = "before"
ASK = """
probe matrix|probe history h0/rail0 h1/rail0|probe keys|probe plan|paths|failover log
failover status|failover stop --why recorded|failover start --why recorded|traffic status
traffic moves|traffic mode act|traffic mode observe|clock history h0|clock matrix|clock pairs
clock status|fabric changes|fabric paths h0/rail0 h1/rail0|incidents list|incidents rules
incidents silence --for 1s h0|enrol token agent h99|enrol list|enrol revoke h7|changes
fabric show|links history|links list|sla check h0|sla report --by rail|audit run
probe keys --rotate|controller takeover --above 1
"""


def main() -> int:
    """Status 1 when a kind of the record before is missing."""
    git = ["git", "status", "--porcelain", "src", "tests/link.py"]
    if subprocess.run(git, capture_output=True, check=True).stdout:
        print("src/ has changes that no commit has: commit them first", file=sys.stderr)
        return 1
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True).stdout
    site = Path(sysconfig.get_paths()["purelib"])
    hook = site / "syntony_record.pth", site / "syntony_record.py"
    with tempfile.TemporaryDirectory(prefix="syntony-record-") as where:
        Path(where).chmod(0o777)
        try:
            hook[1].write_text(WRAP, encoding="ascii")
            hook[0].write_text("import syntony_record\n", encoding="ascii")
            _run(dict(os.environ, SYNTONY_RECORD=where, SYNTONY_RECORD_LARGEST=str(LARGEST)))
        finally:
            for path in hook:
                path.unlink(missing_ok=True)
        found = _chosen(Path(where))
    before = {name for name, _ in _recorded()}
    missing = sorted(before - {name for name, _ in found})
    (HERE / "messages.msgpack").write_bytes(msgspec.msgpack.encode(found))
    (HERE / "protocol.txt").write_text(
        "\n".join(test_contract.described()) + "\n", encoding="ascii"
    )
    (HERE / "COMMIT").write_bytes(commit)
    print(f"{len(found)} messages of {len({name for name, _ in found})} kinds")
    if missing:
        print(f"not seen this time: {', '.join(missing)}", file=sys.stderr)
    return int(bool(missing))


def _recorded() -> list[tuple[str, bytes]]:
    data = (HERE / "messages.msgpack").read_bytes()
    return msgspec.msgpack.decode(data, type=list[tuple[str, bytes]])


def _run(env: dict[str, str]) -> None:
    syntony = str(Path(sys.executable).parent / "syntony")

    def run(*words: str) -> None:
        done = subprocess.run(
            [*words], env=env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        print(f"{done.returncode} {shlex.join(words[1:])} {' '.join(said)}", file=sys.stderr)

    run(syntony, "lab", "up", "--name", LAB, "--detach")
    try:
        for line in ASK.replace("\n", "|").split("|"):
            if line:
                run(syntony, *shlex.split(line), "--lab", LAB)
    finally:
        run(syntony, "lab", "down", "--name", LAB, "--yes")
    run(syntony, "lab", "drill", "contention")
    run(sys.executable, "-m", "pytest", "-q", "-m", "", "tests/agent_link/test_membership.py")


def _chosen(where: Path) -> list[tuple[str, bytes]]:
    """The largest message of each kind; of `Batch` one of each table."""
    best: dict[str, tuple[str, bytes]] = {}
    for path in sorted(where.iterdir()):
        name, data = path.name.split(".")[0], path.read_bytes()
        if name == m.Bundle.__name__:  # what is in it is recorded by itself
            continue
        key = name
        if name == m.Batch.__name__ and isinstance(batch := next(m.decode_bundle(data)), m.Batch):
            key = f"{name} {batch.table}"
        if len(data) > len(best.get(key, ("", b""))[1]):
            best[key] = name, data
    return [best[key] for key in sorted(best)]


if __name__ == "__main__":
    sys.exit(main())
