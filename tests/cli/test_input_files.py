"""Files that somebody names: whatever they are or hold, one line and exit status 2, and soon."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syntony import input_files
from syntony.audit.facts import UnreadableError
from syntony.cli import run
from syntony.errors import InputError
from syntony.io.audit.commands import FOLDER, RecordedCommands, file_name
from syntony.io.audit.host import recorded_host
from syntony.io.bundle_files import read_bundle
from syntony.workload.schema import FORMAT, VERSION

COMMANDS = {
    "agent": "agent --config {}",
    "reactor": "agent reactor --config {}",
    "controller": "controller --config {}",
    "check": "config check {}",
    "topology": "fabric import {}",
    "difference": "fabric diff {} {}",
    "placement": "traffic place --topology {} --flows {}",
    "simulation": "sim run --topology {} --traffic rings",
    "traffic": "sim run --traffic {}",
    "located": "fabric locate --paths {} --obs {}",
    "clocks": "clock solve {}",
    "latency": "sla recorded {}",
    "rules": "lab up --rules {}",
    "objectives": "lab up --sla {}",
    "spec": "audit run --local --check sw.kernel --spec {}",
    "hosts": "audit run --check sw.kernel --hosts @{}",
    "reports": "audit show {}",
    "tree": "audit run --root {}",
    "authority": "enrol join h0 --at 127.0.0.1:1 --ca {} --token t",
    "bundle": "diagnose {bundle}",
    "timeline": "timeline {bundle} --out nowhere.json",
}
"""A command for each kind of file, and the file's place in it."""
TEXTS = {
    "empty": b"",
    "zeros": bytes(4096),
    "binary": bytes(range(256)) * 8,
    "not UTF-8": b"listen = '\xff'\n",
    "half a table": b"[[rule]\nname = 'a",
    "half an object": b'{"device": [{"name": "a"}, {"na',
    "a number": b"7\n",
    "another type": b"listen = 5\nhost = 7\nrule = 8\nobjective = 9\ndevice = 10\n",
    "a key twice": b"host = 'a'\nhost = 'b'\n",
    "a key twice in JSON": b'{"device": [{"name": "a"}], "device": [{"name": "b"}]}',
    "a long number": b"seed = " + b"9" * 5000,
    "a long number in JSON": b'{"device": ' + b"9" * 5000 + b"}",
    "nested": b"a = " + b"[" * 100_000,
    "nested JSON": b'{"a":' * 100_000,
    "aliases of YAML": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Path], str]:
    """Run a command with a file that it must refuse, and return its line."""

    def check(what: str, path: Path) -> str:
        bundle = path.parent / f"bundle-{path.name}"
        if "{bundle}" in COMMANDS[what] and not bundle.exists():
            bundle.mkdir()
            (bundle / "manifest.json").symlink_to(path)
        begun_s = time.process_time()
        words = [
            word.replace("{bundle}", str(bundle)).replace("{}", str(path))
            for word in COMMANDS[what].split()
        ]
        code = run(words)
        said = capsys.readouterr()
        assert (code, said.err.count("\n")) == (2, 1), (words, code, said)
        assert said.err.startswith("syntony: error: "), (words, said.err)
        assert len(said.err) < 400, words
        assert time.process_time() - begun_s < 10, words
        return said.err

    return check


@pytest.mark.parametrize("what", COMMANDS)
def test_content_of_the_wrong_kind(
    what: str, refused: Callable[[str, Path], str], tmp_path: Path
) -> None:
    for number, (name, content) in enumerate(TEXTS.items()):
        if what == "hosts" and content.decode("utf-8", "replace").isprintable():
            continue  # any word may be a host
        file = tmp_path / f"file{number}"
        file.write_bytes(content)
        if (what, name) not in ALLOWED:
            refused(what, file)


ALLOWED = {
    ("rules", "empty"), ("objectives", "empty"), ("spec", "empty"),  # nothing is changed
}  # fmt: skip


@pytest.mark.parametrize("what", COMMANDS)
def test_what_is_no_file(what: str, refused: Callable[[str, Path], str], tmp_path: Path) -> None:
    """Neither waits for a writer, nor reads a device to its end, which it has not."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("folder", "pipe", "loop", "socket", "nothing"):
            if (what, name) != ("tree", "folder"):
                refused(what, tmp_path / name)
    (tmp_path / "zero").symlink_to("/dev/zero")
    refused(what, tmp_path / "zero")


@pytest.mark.parametrize("what", COMMANDS)
def test_a_file_without_an_end(
    what: str,
    refused: Callable[[str, Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sparse file of a tebibyte: nothing of it is read but what is allowed."""
    file = tmp_path / "huge"
    file.touch()
    os.truncate(file, 1 << 40)
    refused(what, file)


def test_a_recorded_tree_with_devices_in_it(tmp_path: Path) -> None:
    """What cannot be read is unknown, and nothing is waited for."""
    folder = tmp_path / FOLDER
    (tmp_path / "etc").mkdir()
    folder.mkdir()
    os.mkfifo(tmp_path / "etc/hostname")
    uname, lspci, ip = (folder / file_name((name,)) for name in ("uname", "lspci", "ip"))
    os.mkfifo(uname)
    lspci.symlink_to("/dev/zero")
    ip.write_text("up")
    ip.with_name(f"{ip.name}.exit").write_text("9" * 5000)
    assert recorded_host(tmp_path).host == tmp_path.name
    commands = RecordedCommands(tmp_path)
    for name, why in (("uname", "nobody writes"), ("lspci", "not a regular file"), ("ip", "ip")):
        with pytest.raises(UnreadableError, match=why):
            commands.run((name,))


def test_a_bundle_with_a_pipe_in_it(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(f'{{"format": "{FORMAT}", "version": {VERSION}}}')
    os.mkfifo(tmp_path / "probes.parquet")
    (tmp_path / "steps.parquet").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="empty-bundle") as caught:
        read_bundle(tmp_path)
    assert str(caught.value).count("not a readable Parquet file (not a regular file)") == 2


def test_limits_are_stated(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert input_files.read_bytes(file, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 0 MiB") as caught:
        input_files.read_bytes(file, 4)
    assert caught.value.strerror == "larger than 0 MiB"
    os.truncate(file, (1 << 20) + 1)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        input_files.check_file(file, 1 << 20)
    os.truncate(file, 1 << 20)
    input_files.check_file(file, 1 << 20)


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    """As a shell's <(…): also if it is slow, and in parts."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            for part in (b"\xef\xbb\xbfa", b"b", b"c"):
                time.sleep(0.05)
                pipe.write(part)
                pipe.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert input_files.read_text(f"/dev/fd/{reader}") == "abc"
    finally:
        thread.join()
        os.close(reader)


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(OSError, match="not the name of a file"):
        input_files.read_bytes("a\0b")
