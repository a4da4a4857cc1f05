"""`syntony run`: what it sets, what it says, and that it gets out of the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live import SYNTONY, eventually, live
from tests.tcp.conftest import Compile, Hosts

from syntony import cli, io
from syntony.cli import run_job
from syntony.errors import MissingError, UsageError
from syntony.io.interposer import checked_exclusions, facts, preloading, tcp_library
from syntony.io.job_hook import hook_directory
from syntony.io.run_directory import agent_socket

LIBRARY, NO_AGENT = str(tcp_library()), "no agent runs here"


def run(*words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SYNTONY, "run", *words],
        capture_output=True, text=True, check=False, timeout=600, env=os.environ | environ,
        stdin=subprocess.DEVNULL, cwd=cwd,
    )  # fmt: skip


def test_the_command_sees_its_environment_and_its_children_too() -> None:
    show = 'sh -c "echo \\$LD_PRELOAD \\$SYNTONY_JOB \\$SYNTONY_TCP_EXCLUDE"'
    done = run("--job", "night", "--exclude", "22, 10.0.0.0/8", "--", "sh", "-c", show)
    assert done.stdout == f"{LIBRARY} night 22,10.0.0.0/8\n"


def test_a_job_that_a_rank_of_another_one_submits_is_recorded_as_well() -> None:
    done = run("--", "sh", "-c", "echo ${SYNTONY_REPORTING-not set}", SYNTONY_REPORTING="7")
    assert done.stdout == "not set\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--", "sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 7"], 7),
        (["--", "sh", "-c", "kill -9 $$"], -signal.SIGKILL),
        (["--", "sh", "-c", "kill -PIPE $$; exit 3"], -signal.SIGPIPE),
        (["--", "/no/such/command"], 127),
        (["--", "/etc/passwd"], 126),
        (["--", "/"], 126),
    ],
)
def test_exit_codes(words: list[str], code: int) -> None:
    # The embedded store, opened by other tests of this process, blocks it for good.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
    done = run(*words)
    assert done.returncode == code
    said = [line for line in done.stderr.splitlines() if NO_AGENT not in line]
    assert len(said) == (code in {126, 127})


@pytest.mark.parametrize(
    ("runs", "socket", "told"),
    [(False, False, True), (False, True, False), (True, False, False), (None, False, False)],
)
def test_that_no_agent_runs_is_told(  # noqa: PLR0917 - a row
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    runs: bool | None, socket: bool, told: bool,
) -> None:  # fmt: skip
    """Not if it cannot be seen, as from a container into which its socket is mounted."""
    place = tmp_path / "agent"
    if socket:
        place.touch()
    monkeypatch.setenv("SYNTONY_AGENT", str(place))
    monkeypatch.setattr(run_job, "facts", lambda: facts()._replace(agent=runs))
    monkeypatch.setattr(run_job, "_become", lambda _words, _environ: 0)
    assert run_job.command.main(["true"], standalone_mode=False) == 0
    assert (NO_AGENT in capsys.readouterr().err) == told


def test_a_script_without_its_interpreter_is_not_a_missing_command(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o755)
    done = run("--", str(script))
    assert done.returncode == 126
    assert done.stderr.endswith(
        f"syntony: error: {script}: the interpreter in its first line does not exist\n"
    )
    # Of the same name without a directory, only PATH counts.
    assert "no such command" in run("--", "job.sh", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "run needs a command"),
        (["--job", "a b", "--", "true"], "cannot name a job"),
        (["--job", "", "--", "true"], "'' cannot name a job"),
        (["--exclude", "ssh", "--", "true"], "cannot exclude 'ssh'"),
        (["--jbo", "x", "--", "true"], "No such option"),
        (["--json", "--", "true"], "--json needs --dry-run"),
    ],
)
def test_bad_words_are_one_line(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_process_id_input_and_signals_are_the_commands_own() -> None:
    script = (
        "import os, signal; print(os.getpid(), flush=True);"
        "print(input(), flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [*SYNTONY, "run", "--", sys.executable, "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == "hello\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == -signal.SIGTERM


def test_dry_run_says_what_it_would_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    path = f"{hook_directory()}:/mine"
    assert cli.run(["run", "--dry-run", "--json", "--job", "a", "--", "sh", "-c", "x"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    socket = "/run/syntony/agent"
    assert said["environment"] == {
        "LD_PRELOAD": LIBRARY, "SYNTONY_JOB": "a", "SYNTONY_AGENT": socket,
        "PYTHONPATH": path,
    }  # fmt: skip
    assert said["command"] == ["sh", "-c", "x"]
    assert said["program"].endswith("/sh")
    assert set(said["host"]) == {"mptcp", "detail", "path_manager", "agent"}
    assert cli.run(["run", "--dry-run", "--job", "a"]) == 0
    lines = capsys.readouterr()
    assert lines.out == (
        f"LD_PRELOAD={LIBRARY}\nSYNTONY_JOB=a\nSYNTONY_AGENT={socket}\nPYTHONPATH={path}\n"
    )
    assert lines.err.startswith("MPTCP ")


@pytest.mark.parametrize(
    ("environ", "socket"),
    [
        ({}, "/run/syntony/agent"),
        ({"SYNTONY_CLOCK_DIR": "/lab/h0"}, "/lab/h0/agent"),
        ({"SYNTONY_CLOCK_DIR": "/lab/h0", "SYNTONY_AGENT": "/mine"}, "/mine"),
        ({"SYNTONY_CLOCK_DIR": "", "SYNTONY_AGENT": ""}, "/run/syntony/agent"),
    ],
)
def test_the_agents_socket_is_beside_the_clock_page(environ: dict[str, str], socket: str) -> None:
    assert agent_socket(environ) == socket


@pytest.mark.lab
def test_the_environment_alone_does_the_same(hosts: Hosts, compiled: Compile) -> None:
    program = compiled("tcp_calls")
    said = hosts.lab.run("h0", *SYNTONY, "run", "--dry-run", "--json")
    document = json.loads(said)
    variables = [f"{name}={value}" for name, value in document["environment"].items()]
    assert hosts.lab.run("h0", "env", "-i", *variables, program, "show") == "mptcp\n"
    assert hosts.lab.run("h0", *SYNTONY, "run", "--", program, "show") == "mptcp\n"
    assert hosts.lab.run("h0", "env", "-i", program, "show") == "tcp\n"
    assert document["host"]["path_manager"] == "kernel"
    assert document["host"]["agent"] is False  # this lab has none


@pytest.mark.lab
def test_an_agent_is_seen_in_its_own_namespace_only(hosts: Hosts) -> None:
    def agent(lab_host: str) -> bool | None:
        said = json.loads(lab.run(lab_host, *SYNTONY, "run", "--dry-run", "--json"))
        found: bool | None = said["host"]["agent"]
        return found

    with live("t-run-agents", "--hosts", "2", "--leaves", "1", agents=True) as lab:
        eventually(lambda: agent("h0") is True, "the agent of h0 is seen")
        assert agent("leaf0-0") is False


@pytest.mark.parametrize(
    ("present", "value"),
    [
        ({}, LIBRARY),
        ({"LD_PRELOAD": ""}, LIBRARY),
        ({"LD_PRELOAD": "/a.so:b.so /c.so"}, f"{LIBRARY} /a.so b.so /c.so"),
        ({"LD_PRELOAD": f"/a.so {LIBRARY}"}, f"{LIBRARY} /a.so"),
    ],
)
def test_what_is_preloaded_already_stays(present: dict[str, str], value: str) -> None:
    assert preloading(Path(LIBRARY), present) == value


@pytest.mark.parametrize(
    ("text", "checked"),
    [
        ("", ""),
        ("22", "22"),
        (" 22,\t6000-6010\n", "22,6000-6010"),
        ("10.0.0.7,10.0.0.0/8,fd00::/8,::1", "10.0.0.7,10.0.0.0/8,fd00::/8,::1"),
        ("10.1.2.3/8", "10.1.2.3/8"),
    ],
)
def test_exclusions(text: str, checked: str) -> None:
    assert checked_exclusions(text) == checked


@pytest.mark.parametrize(
    "entry",
    ["0", "65536", "9-8", "-5", "5-", "ssh", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "fd00::/129",
     "10.0.0.1:22", "fe80::1%eth0", "²", "10.0.0.0/255.0.0.0"],
)  # fmt: skip
def test_what_cannot_be_excluded_is_named(entry: str) -> None:
    with pytest.raises(UsageError, match="cannot exclude"):
        checked_exclusions(f"22,{entry}")


def test_too_many_exclusions() -> None:
    with pytest.raises(UsageError, match="33 exclusions are more than 32"):
        checked_exclusions(",".join(map(str, range(1, 34))))


def test_a_library_that_cannot_be_preloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(io, "__path__", [str(tmp_path)])
    with pytest.raises(MissingError, match="is not installed"):
        tcp_library()
    place = tmp_path / "with blank"
    (place / "_native").mkdir(parents=True)
    (place / "_native" / "libsyntony_tcp.so").touch()
    monkeypatch.setattr(io, "__path__", [str(place)])
    with pytest.raises(MissingError, match="blank or a colon"):
        tcp_library()


def test_facts_of_another_root(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/net/mptcp").mkdir(parents=True)
    (tmp_path / "proc/sys/net/mptcp/pm_type").write_text("1\n")
    found = facts(tmp_path)
    assert found.agent is None  # nothing to see there
    if found.mptcp:
        assert found.path_manager == "userspace"
